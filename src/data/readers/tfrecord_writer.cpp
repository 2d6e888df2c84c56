#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/fail.h"
#include "base/log.h"
#include "cohort/data/tfrecord_writer.h"
#include "data/readers/tfrecord.h"

namespace cohort {

class TFRecordWriter::Impl {
 public:
  Impl(const std::filesystem::path& file, Compression compression)
      : name_(file.string()),
        out_(file, std::ios::binary | std::ios::trunc),
        compressed_(compression != Compression::kNone) {
    if (!out_) fail<Unavailable>("[data] ", name_, ": cannot be made: ", std::strerror(errno));
    if (!compressed_) return;
    const int header = compression == Compression::kGzip ? 16 + MAX_WBITS : MAX_WBITS;
    if (deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, header, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
      fail<Internal>("[data] ", name_, ": zlib does not start");
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    try {
      close();
    } catch (const std::exception& error) {
      log().error("{}", error.what());
    }
    if (compressed_) deflateEnd(&stream_);
  }

  void write(std::string_view record) {
    if (closed_) fail<FailedPrecondition>("[data] ", name_, ": a record came after close()");
    std::array<char, tfrecord::kHead> head{};
    const uint64_t length = record.size();
    std::memcpy(head.data(), &length, 8);
    put_number(head.data() + 8, tfrecord::masked_crc({head.data(), 8}));
    std::array<char, tfrecord::kTail> tail{};
    put_number(tail.data(), tfrecord::masked_crc(record));
    put({head.data(), head.size()}, Z_NO_FLUSH);
    put(record, Z_NO_FLUSH);
    put({tail.data(), tail.size()}, Z_NO_FLUSH);
  }

  void flush() {
    if (compressed_) fail<FailedPrecondition>("[data] ", name_, ": flush() is for plain files");
    out_.flush();
    require_written();
  }

  void close() {
    if (closed_) return;
    closed_ = true;
    if (compressed_) put({}, Z_FINISH);
    out_.close();
    require_written();
  }

 private:
  static void put_number(char* to, uint32_t number) { std::memcpy(to, &number, sizeof number); }

  void put(std::string_view bytes, int flush) {
    if (!compressed_) {
      out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
      return require_written();
    }
    // The counters of zlib have 32 bits.
    constexpr std::size_t kMost = std::size_t{1} << 30;
    do {
      const std::string_view part = bytes.substr(0, kMost);
      bytes.remove_prefix(part.size());
      deflate_part(part, bytes.empty() ? flush : Z_NO_FLUSH);
    } while (!bytes.empty());
  }

  void deflate_part(std::string_view part, int flush) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(part.data()));
    stream_.avail_in = static_cast<uInt>(part.size());
    int code = Z_OK;
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(packed_.data());
      stream_.avail_out = static_cast<uInt>(packed_.size());
      code = deflate(&stream_, flush);
      out_.write(packed_.data(), static_cast<std::streamsize>(packed_.size() - stream_.avail_out));
    } while (stream_.avail_out == 0 || (flush == Z_FINISH && code == Z_OK));
    require_written();
  }

  void require_written() const {
    if (out_) return;
    fail<Unavailable>("[data] ", name_, ": writing fails: ", std::strerror(errno));
  }

  std::string name_;
  std::ofstream out_;
  bool compressed_;
  bool closed_ = false;
  z_stream stream_{};
  std::array<char, 64 << 10> packed_{};
};

TFRecordWriter::TFRecordWriter(const std::filesystem::path& file, Compression compression)
    : impl_(std::make_unique<Impl>(file, compression)) {}
TFRecordWriter::TFRecordWriter(TFRecordWriter&&) noexcept = default;
TFRecordWriter& TFRecordWriter::operator=(TFRecordWriter&&) noexcept = default;
TFRecordWriter::~TFRecordWriter() = default;

void TFRecordWriter::write(std::string_view record) {
  impl_->write(record);
}
void TFRecordWriter::flush() {
  impl_->flush();
}

void TFRecordWriter::close() {
  impl_->close();
}

}  // namespace cohort
