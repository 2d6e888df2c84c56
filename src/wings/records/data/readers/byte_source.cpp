#include "wings/records/data/readers/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/fail.h"

namespace cohort {

namespace {

class PlainFile final : public ByteSource {
 public:
  explicit PlainFile(const std::filesystem::path& file)
      : name_(file.string()), descriptor_(::open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat status {};
    if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0 || S_ISDIR(status.st_mode)) {
      const int error = S_ISDIR(status.st_mode) ? EISDIR : errno;
      if (descriptor_ >= 0) ::close(descriptor_);
      fail<NotFound>("[data] ", name_, ": cannot be opened: ", std::strerror(error));
    }
    if (S_ISREG(status.st_mode)) size_ = status.st_size;
    (void)::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);
  }
  PlainFile(const PlainFile&) = delete;
  PlainFile& operator=(const PlainFile&) = delete;
  ~PlainFile() override { ::close(descriptor_); }

  std::size_t read(void* to, std::size_t size) override {
    std::size_t done = 0;
    while (done < size) {
      const ssize_t part = ::read(descriptor_, static_cast<char*>(to) + done, size - done);
      if (part < 0 && errno == EINTR) continue;
      if (part < 0) {
        fail<Unavailable>("[data] ", name_, ": reading fails at byte ", at_ + static_cast<int64_t>(done), ": ",
                          std::strerror(errno));
      }
      if (part == 0) break;
      done += static_cast<std::size_t>(part);
    }
    at_ += static_cast<int64_t>(done);
    return done;
  }

  void seek(int64_t offset) override {
    if (::lseek(descriptor_, offset, SEEK_SET) < 0) {
      fail<Unavailable>("[data] ", name_, ": there is no going to byte ", offset, ": ", std::strerror(errno));
    }
    at_ = offset;
  }

  std::optional<int64_t> left() const override {
    return size_ ? std::optional(std::max<int64_t>(0, *size_ - at_)) : std::nullopt;
  }

 private:
  std::string name_;
  int descriptor_;
  std::optional<int64_t> size_;  // only known for a regular file
  int64_t at_ = 0;
};

// Decompresses gzip of one or several members, or zlib.
class Inflated final : public ByteSource {
 public:
  explicit Inflated(const std::filesystem::path& file) : name_(file.string()), file_(file), packed_(kChunk) { begin(); }
  Inflated(const Inflated&) = delete;
  Inflated& operator=(const Inflated&) = delete;
  ~Inflated() override { inflateEnd(&stream_); }

  std::size_t read(void* to, std::size_t size) override {
    std::size_t done = 0;
    while (done < size) {
      if (stream_.avail_in == 0) fill();
      if (stream_.avail_in == 0 && between_) break;
      if (between_) {
        if (inflateReset(&stream_) != Z_OK) fail<Internal>("[data] ", name_, ": zlib does not start");
        between_ = false;
      }
      stream_.next_out = static_cast<Bytef*>(to) + done;
      stream_.avail_out = static_cast<uInt>(std::min<std::size_t>(size - done, 1U << 30));
      const uInt room = stream_.avail_out;
      const bool starved = stream_.avail_in == 0;
      const int code = inflate(&stream_, Z_NO_FLUSH);
      done += room - stream_.avail_out;
      between_ = code == Z_STREAM_END;
      if (code != Z_OK && code != Z_STREAM_END && (code != Z_BUF_ERROR || starved)) refuse(code);
    }
    return done;
  }

  void seek(int64_t offset) override {
    inflateEnd(&stream_);
    file_.seek(0);
    read_ = 0;
    begin();
    std::vector<char> passed(kChunk);
    while (offset > 0) {
      const std::size_t part = read(passed.data(), static_cast<std::size_t>(std::min<int64_t>(offset, kChunk)));
      if (part == 0) return;
      offset -= static_cast<int64_t>(part);
    }
  }

  std::optional<int64_t> left() const override { return std::nullopt; }

 private:
  static constexpr std::size_t kChunk = 256 << 10;

  void begin() {
    stream_ = {};
    between_ = false;
    constexpr int kAnyHeader = 32 + MAX_WBITS;
    if (inflateInit2(&stream_, kAnyHeader) != Z_OK) fail<Internal>("[data] ", name_, ": zlib does not start");
  }
  void fill() {
    stream_.next_in = reinterpret_cast<Bytef*>(packed_.data());
    stream_.avail_in = static_cast<uInt>(file_.read(packed_.data(), packed_.size()));
    read_ += stream_.avail_in;
  }
  [[noreturn]] void refuse(int code) const {
    fail<DataLoss>("[data] ", name_, ": compressed data ", code == Z_BUF_ERROR ? "ends too early" : "is corrupt",
                   " at byte ", read_ - stream_.avail_in, " of the file",
                   stream_.msg != nullptr ? c10::str(" (", stream_.msg, ")") : std::string());
  }

  std::string name_;
  PlainFile file_;
  std::vector<char> packed_;
  z_stream stream_{};
  bool between_ = false;  // between two members or at the end
  uint64_t read_ = 0;     // bytes of the file that were read
};

}  // namespace

std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& file, Compression compression) {
  if (compression == Compression::kNone) return std::make_unique<PlainFile>(file);
  return std::make_unique<Inflated>(file);
}

}  // namespace cohort
