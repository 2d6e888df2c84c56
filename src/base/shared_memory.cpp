#include "base/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/fail.h"

namespace cohort {

namespace {

// The seals with which nobody can shrink memory that another process has mapped, which would end that process.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

SharedMemory::SharedMemory(int file, std::size_t bytes) : file_(file) {
  void* const address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (address == MAP_FAILED) {
    const int error = errno;
    ::close(file);
    fail<Unavailable>("[shared memory] ", bytes, " bytes cannot be mapped: ", std::strerror(error));
  }
  bytes_ = {static_cast<std::byte*>(address), bytes};
}

SharedMemory::~SharedMemory() {
  ::munmap(bytes_.data(), bytes_.size());
  close();
}

std::shared_ptr<SharedMemory> SharedMemory::create(std::size_t bytes) {
  const int file = ::memfd_create("cohort", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0 || ::fcntl(file, F_ADD_SEALS, kSeals) != 0) {
    const int error = errno;
    if (file >= 0) ::close(file);
    fail<Unavailable>("[shared memory] the system has no ", bytes, " bytes: ", std::strerror(error));
  }
  return std::shared_ptr<SharedMemory>(new SharedMemory(file, bytes));
}

std::shared_ptr<SharedMemory> SharedMemory::open(const Handle& handle, std::size_t bytes) {
  const std::string path = "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) fail<Unavailable>("[shared memory] ", path, ": ", std::strerror(errno));
  struct stat status {};
  if (::fstat(file, &status) != 0 || static_cast<std::size_t>(status.st_size) != bytes) {
    ::close(file);
    fail<Unavailable>("[shared memory] ", path, " has ", status.st_size, " bytes instead of ", bytes);
  }
  // The path comes from another process. A plain file of that size would open as well, but could be cut at any time.
  if (::fcntl(file, F_GET_SEALS) != kSeals) {
    ::close(file);
    fail<Unavailable>("[shared memory] ", path, " is no memory that was made to be shared");
  }
  return std::shared_ptr<SharedMemory>(new SharedMemory(file, bytes));
}

SharedMemory::Handle SharedMemory::handle() const {
  return {.process = ::getpid(), .file = file_};
}

void SharedMemory::close() {
  if (file_ >= 0) ::close(std::exchange(file_, -1));
}

}  // namespace cohort
