#include <zlib.h>

#include <fstream>
#include <iterator>

#include "base/fail.h"
#include "data/readers/idx.h"

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
  stream.avail_in = static_cast<uInt>(packed.size());
  int code = Z_OK;
  while (true) {
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = static_cast<uInt>(chunk.size());
    code = inflate(&stream, Z_NO_FLUSH);
    bytes.append(chunk, 0, chunk.size() - stream.avail_out);
    if (code == Z_STREAM_END && stream.avail_in > 0) {
      if (inflateReset(&stream) != Z_OK) break;
      continue;
    }
    if (code != Z_OK) break;
    if (stream.avail_in == 0 && stream.avail_out > 0) break;  // wants more input than there is
  }
  if (code == Z_STREAM_END) return bytes;
  const auto offset = packed.size() - stream.avail_in;
  fail<DataLoss>("[data] ", source, ": gzip data ",
                 code == Z_OK || code == Z_BUF_ERROR ? "ends too early" : "is corrupt", " at byte ", offset, " of ",
                 packed.size(), stream.msg != nullptr ? c10::str(" (", stream.msg, ")") : std::string());
}

}  // namespace

std::string read_maybe_gzip(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in || std::filesystem::is_directory(file)) fail<NotFound>("[data] ", file.string(), ": cannot be opened");
  std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const bool gzip = bytes.size() >= 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b';
  return gzip ? inflate_all(bytes, file.string()) : bytes;
}

}  // namespace cohort
