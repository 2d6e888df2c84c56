// Files are read, not mapped: a mapped file that another process removes from a file server ends this one by a signal.
#include "checkpoint/file_ranges.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/crc32c.h"
#include "base/fail.h"
#include "base/regular_file.h"

namespace cohort {

namespace {

constexpr uint64_t kWindow = uint64_t{1} << 20;  // bytes
constexpr uint64_t kSmall = kWindow / 8;         // ranges below go through the window

}  // namespace

FileRanges::FileRanges(std::filesystem::path file) : file_(std::move(file)) {
  descriptor_ = open_regular_file(file_, "checkpoint");
  struct stat status {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) {
    const int code = errno;
    if (descriptor_ >= 0) ::close(descriptor_);
    fail<NotFound>("[checkpoint] ", file_.string(), ": cannot be opened: ", std::strerror(code));
  }
  size_ = static_cast<uint64_t>(status.st_size);
}

FileRanges::~FileRanges() {
  ::close(descriptor_);
}

void FileRanges::read(uint64_t begin, std::span<std::byte> bytes) {
  if (bytes.size() >= kSmall || begin + bytes.size() > size_) return read_through(begin, bytes);
  if (begin < window_begin_ || begin + bytes.size() > window_begin_ + window_.size()) {
    window_.resize(std::min(kWindow, size_ - begin));
    window_begin_ = begin;
    read_through(begin, window_);
  }
  std::copy_n(window_.begin() + static_cast<std::ptrdiff_t>(begin - window_begin_), bytes.size(), bytes.begin());
}

void FileRanges::read_through(uint64_t begin, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = ::pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(begin));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      fail<DataLoss>("[checkpoint] ", file_.string(), ": ", bytes.size(), " bytes from byte ", begin,
                     " on cannot be read: ", count < 0 ? std::strerror(errno) : "it is cut short");
    }
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    begin += static_cast<uint64_t>(count);
  }
}

uint32_t FileRanges::checksum() const {
  std::vector<std::byte> block(std::min(kWindow, size_));
  uint32_t crc = 0;
  for (uint64_t at = 0; at < size_; at += block.size()) {
    const auto part = std::span(block).first(std::min<uint64_t>(block.size(), size_ - at));
    read_through(at, part);
    crc = crc32c(part, crc);
  }
  return crc;
}

}  // namespace cohort
