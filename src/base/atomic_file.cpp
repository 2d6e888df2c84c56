#include "base/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/fail.h"

namespace cohort {

namespace {

[[noreturn]] void fail_on(const std::filesystem::path& file, std::string_view what) {
  const int code = errno;
  if (code == ENOENT) fail<NotFound>("[file] ", file.string(), ": cannot ", what, ": ", std::strerror(code));
  fail<Unavailable>("[file] ", file.string(), ": cannot ", what, ": ", std::strerror(code));
}

std::filesystem::path temporary_name(const std::filesystem::path& file) {
  static std::atomic<uint64_t> count{0};
  return file.string() + ".tmp." + std::to_string(::getpid()) + "." + std::to_string(count.fetch_add(1));
}

}  // namespace

void flush_folder(const std::filesystem::path& folder) {
  const int handle = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0) fail_on(folder, "be opened");
  ::fsync(handle);  // some file systems cannot, and need not
  ::close(handle);
}

AtomicFile::AtomicFile(std::filesystem::path file) : file_(std::move(file)), temporary_(temporary_name(file_)) {
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail_on(file_, "be created");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_on(file_, "be written");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) fail_on(file_, "be flushed");
  if (::close(std::exchange(descriptor_, -1)) != 0) {
    ::unlink(temporary_.c_str());
    fail_on(file_, "be closed");
  }
  if (::rename(temporary_.c_str(), file_.c_str()) != 0) {
    const int code = errno;
    ::unlink(temporary_.c_str());
    errno = code;
    fail_on(file_, "be renamed");
  }
  flush_folder(file_.has_parent_path() ? file_.parent_path() : ".");
}

}  // namespace cohort
