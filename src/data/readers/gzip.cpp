#include <zlib.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/fail.h"
#include "data/readers/gzip.h"

namespace cohort {

namespace {

// Inflates a whole gzip file, several members included.
std::string inflate_all(const std::string& packed, const std::string& source) {
  z_stream stream{};
  if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) fail<Internal>("[data] ", source, ": zlib does not start");
  struct End {
    z_stream* stream;
    ~End() { inflateEnd(stream); }
  } end{&stream};

  std::string bytes;
  std::string chunk(256 << 10, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  std::size_t left = packed.size();  // bytes that zlib has not got yet; its counters have 32 bits
  int code = Z_OK;
  while (true) {
    if (stream.avail_in == 0) {
      stream.avail_in = static_cast<uInt>(std::min<std::size_t>(left, 1U << 30));
      left -= stream.avail_in;
    }
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = static_cast<uInt>(chunk.size());
    code = inflate(&stream, Z_NO_FLUSH);
    bytes.append(chunk, 0, chunk.size() - stream.avail_out);
    if (code == Z_STREAM_END && stream.avail_in + left > 0) {
      if (inflateReset(&stream) != Z_OK) break;
      continue;
    }
    if (code != Z_OK) break;
    if (stream.avail_in + left == 0 && stream.avail_out > 0) break;  // the input ends too early
  }
  if (code == Z_STREAM_END) return bytes;
  const auto offset = packed.size() - left - stream.avail_in;
  fail<DataLoss>("[data] ", source, ": gzip data ",
                 code == Z_OK || code == Z_BUF_ERROR ? "ends too early" : "is corrupt", " at byte ", offset, " of ",
                 packed.size(), stream.msg != nullptr ? c10::str(" (", stream.msg, ")") : std::string());
}

}  // namespace

std::string inflate_if_gzip(std::string bytes, const std::string& source) {
  const bool gzip = bytes.size() >= 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b';
  return gzip ? inflate_all(bytes, source) : bytes;
}

std::string read_maybe_gzip(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in || std::filesystem::is_directory(file)) fail<NotFound>("[data] ", file.string(), ": cannot be opened");
  std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (in.bad()) fail<Unavailable>("[data] ", file.string(), ": reading fails after ", bytes.size(), " bytes");
  return inflate_if_gzip(std::move(bytes), file.string());
}

}  // namespace cohort
