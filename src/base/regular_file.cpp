#include "base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/fail.h"

namespace cohort {

namespace {

// Fails unless it is a file.
void require_mode(mode_t mode, const std::filesystem::path& file, std::string_view speaker) {
  if (S_ISREG(mode)) return;
  const char* const what = S_ISDIR(mode)    ? "a folder"
                           : S_ISLNK(mode)  ? "a link, which would write to another place"
                           : S_ISFIFO(mode) ? "a pipe"
                           : S_ISSOCK(mode) ? "a socket"
                                            : "a device";
  fail<FailedPrecondition>("[", speaker, "] ", file.string(), ": is ", what, ", wanted a file");
}

// Returns the descriptor, which is closed and -1 if its file does not fit.
int checked_descriptor(int descriptor, const std::filesystem::path& file, std::string_view speaker) {
  struct stat status {};
  if (descriptor < 0 || ::fstat(descriptor, &status) != 0) return descriptor;
  try {
    require_mode(status.st_mode, file, speaker);
  } catch (...) {
    ::close(descriptor);
    throw;
  }
  return descriptor;
}

std::optional<std::string> read_all(int descriptor, const std::filesystem::path& file, std::string_view speaker) {
  std::string bytes;
  std::array<char, 1 << 16> part{};
  ssize_t count = -1;
  while (descriptor >= 0) {
    count = ::read(descriptor, part.data(), part.size());
    if (count == 0 || (count < 0 && errno != EINTR)) break;
    if (count > 0) bytes.append(part.data(), static_cast<std::size_t>(count));
  }
  const int code = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (count == 0) return bytes;
  if (descriptor < 0 && (code == ENOENT || code == ENOTDIR || code == ESTALE)) return std::nullopt;
  fail<Unavailable>("[", speaker, "] ", file.string(), ": cannot be read: ", std::strerror(code));
}

}  // namespace

int open_regular_file(const std::filesystem::path& file, std::string_view speaker) {
  return checked_descriptor(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC), file, speaker);
}

std::optional<std::string> read_regular_file(const std::filesystem::path& file, std::string_view speaker) {
  return read_all(open_regular_file(file, speaker), file, speaker);
}

std::optional<std::string> read_file_or_pipe(const std::filesystem::path& file, std::string_view speaker) {
  return read_all(::open(file.c_str(), O_RDONLY | O_CLOEXEC), file, speaker);
}

int open_own_file(const std::filesystem::path& file, int flags, std::string_view speaker) {
  const int descriptor = ::open(file.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    const int code = errno;
    require_own_file(file, speaker);
    errno = code;
  }
  return checked_descriptor(descriptor, file, speaker);
}

void require_own_file(const std::filesystem::path& file, std::string_view speaker) {
  struct stat status {};
  if (::lstat(file.c_str(), &status) == 0) require_mode(status.st_mode, file, speaker);
}

}  // namespace cohort
