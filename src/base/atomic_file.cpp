#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "base/draw.h"
#include "base/fail.h"

namespace cohort {

namespace {

constexpr const char* kMark = ".tmp.";
constexpr const char* kNoMachine = "0";
constexpr time_t kForgottenSeconds = 24 * 3600;

[[noreturn]] void fail_on(const std::filesystem::path& file, std::string_view what) {
  const int code = errno;
  if (code == ENOENT) fail<NotFound>("[file] ", file.string(), ": cannot ", what, ": ", std::strerror(code));
  fail<Unavailable>("[file] ", file.string(), ": cannot ", what, ": ", std::strerror(code));
}

// Names the running kernel, which all containers of a machine share; kNoMachine where it has no name.
const std::string& machine() {
  static const std::string name = [] {
    std::string id;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
    const std::string part = id.substr(0, id.find('-'));
    return part.empty() ? std::string(kNoMachine) : part;
  }();
  return name;
}

std::filesystem::path temporary_name(const std::filesystem::path& file) {
  char random[17];
  std::snprintf(random, sizeof random, "%016llx", static_cast<unsigned long long>(draw_number()));
  return file.string() + kMark + machine() + "." + random;
}

// Returns the machine in the name of a temporary of "file", or "" if "name" is not one.
std::string machine_in(std::string_view name, const std::string& file) {
  const std::string beginning = file + kMark;
  if (!name.starts_with(beginning)) return "";
  name.remove_prefix(beginning.size());
  const std::size_t point = name.find('.');
  constexpr const char* kHex = "0123456789abcdef";
  if (point == 0 || point >= name.size() - 1 || name.find_first_not_of(kHex) != point ||
      name.find_first_not_of(kHex, point + 1) != std::string_view::npos) {
    return "";
  }
  return std::string(name.substr(0, point));
}

// Removes a temporary whose writer is dead. "now" is the time of the file system, which its server may keep.
void remove_if_dead(const std::filesystem::path& temporary, bool of_this_machine, time_t now) {
  const int file = ::open(temporary.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return;
  struct stat status {};
  const bool known = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  const bool forgotten = now - status.st_mtime > kForgottenSeconds;
  if (known && (of_this_machine || forgotten) && ::flock(file, LOCK_EX | LOCK_NB) == 0) ::unlink(temporary.c_str());
  ::close(file);
}

// Locks a file that was just made. Returns whether it is still under its name then.
bool lock(int descriptor, const std::filesystem::path& file, struct stat& status) {
  while (::flock(descriptor, LOCK_EX) != 0 && errno == EINTR) {
  }
  ::fstat(descriptor, &status);
  struct stat named {};
  return ::stat(file.c_str(), &named) == 0 || errno != ENOENT;
}

void remove_dead_temporaries(const std::filesystem::path& file, time_t now) {
  const std::string name = file.filename();
  std::error_code error;
  for (std::filesystem::directory_iterator at(file.has_parent_path() ? file.parent_path() : ".", error), end;
       !error && at != end; at.increment(error)) {
    const std::string from = machine_in(at->path().filename().string(), name);
    if (!from.empty()) remove_if_dead(at->path(), from == machine() && from != kNoMachine, now);
  }
}

}  // namespace

void flush_folder(const std::filesystem::path& folder) {
  const int handle = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0) fail_on(folder, "be opened");
  ::fsync(handle);  // some file systems cannot, and need not
  ::close(handle);
}

AtomicFile::AtomicFile(std::filesystem::path file) : file_(std::move(file)) {
  struct stat status {};
  const bool is_there = ::lstat(file_.c_str(), &status) == 0;
  if (is_there && !S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode) && !S_ISDIR(status.st_mode)) {
    fail<FailedPrecondition>("[file] ", file_.string(), ": is a device, a pipe or a socket, wanted a file");
  }
  do {
    if (descriptor_ >= 0) ::close(descriptor_);
    temporary_ = temporary_name(file_);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (descriptor_ < 0 && errno != EEXIST) fail_on(file_, "be created");
    // A file system without locks is no error: there nobody can take this file for a dead writer's. Another process may
    // have done so before the lock was there.
  } while (descriptor_ < 0 || !lock(descriptor_, temporary_, status));
  remove_dead_temporaries(file_, status.st_mtime);
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
  // The lock, which closing releases, holds until the file has its name.
  if (::rename(temporary_.c_str(), file_.c_str()) != 0) fail_on(file_, "be renamed");
  if (::close(std::exchange(descriptor_, -1)) != 0) fail_on(file_, "be closed");
  flush_folder(file_.has_parent_path() ? file_.parent_path() : ".");
}

}  // namespace cohort
