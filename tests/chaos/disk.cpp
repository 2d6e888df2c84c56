// A disk that fails, for LD_PRELOAD: what a process does below CHAOS_DISK_BELOW meets the faults that stand in the file
// CHAOS_DISK_FAULTS, while it runs: one line, five numbers:
//   WRITES RENAMES ERRNO FSYNC_MS FSYNCS
// WRITES and RENAMES are the shares (0 to 1) of calls that fail with ERRNO (EIO, ENOSPC); each fsync takes FSYNC_MS
// longer, and FSYNCS is the share of them that fails. Without the file nothing fails.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

namespace {

struct Faults {
  double writes = 0.0;
  double renames = 0.0;
  int error = EIO;
  int fsync_ms = 0;
  double fsyncs = 0.0;
};

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));  // the one that this library stands before
}

// Read with the calls that are not replaced here; a file that is not whole says nothing.
Faults faults() {
  Faults result;
  const char* path = std::getenv("CHAOS_DISK_FAULTS");
  const int file = path != nullptr ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return result;
  std::array<char, 256> text{};
  const ssize_t count = read(file, text.data(), text.size() - 1);
  close(file);
  Faults found;
  if (count <= 0 || std::sscanf(text.data(), "%lf %lf %d %d %lf", &found.writes, &found.renames, &found.error,
                                &found.fsync_ms, &found.fsyncs) != 5) {
    return result;
  }
  return found;
}

bool is_below(const char* path) {
  const char* folder = std::getenv("CHAOS_DISK_BELOW");
  return folder != nullptr && path != nullptr && std::strncmp(path, folder, std::strlen(folder)) == 0;
}

bool is_below(int file) {
  std::array<char, PATH_MAX> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  return readlink(link.c_str(), path.data(), path.size() - 1) > 0 && is_below(path.data());
}

bool chance(double share) {
  thread_local std::mt19937_64 random(std::random_device{}());
  return share > 0.0 && std::uniform_real_distribution<>()(random) < share;
}

bool write_fails(int file) {
  if (!is_below(file)) return false;
  const Faults now = faults();
  if (!chance(now.writes)) return false;
  errno = now.error;
  return true;
}

bool sync_fails(int file) {
  if (!is_below(file)) return false;
  const Faults now = faults();
  if (now.fsync_ms > 0) usleep(static_cast<useconds_t>(now.fsync_ms) * 1000);
  if (!chance(now.fsyncs)) return false;
  errno = EIO;
  return true;
}

bool rename_fails(const char* to) {
  if (!is_below(to)) return false;
  const Faults now = faults();
  if (!chance(now.renames)) return false;
  errno = now.error;
  return true;
}

}  // namespace

extern "C" {

ssize_t write(int file, const void* bytes, size_t count) {
  return write_fails(file) ? -1 : next<ssize_t(int, const void*, size_t)>("write")(file, bytes, count);
}

ssize_t writev(int file, const iovec* parts, int count) {
  return write_fails(file) ? -1 : next<ssize_t(int, const iovec*, int)>("writev")(file, parts, count);
}

ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
  return write_fails(file) ? -1 : next<ssize_t(int, const void*, size_t, off_t)>("pwrite")(file, bytes, count, offset);
}

int fsync(int file) {
  return sync_fails(file) ? -1 : next<int(int)>("fsync")(file);
}

int fdatasync(int file) {
  return sync_fails(file) ? -1 : next<int(int)>("fdatasync")(file);
}

int rename(const char* from, const char* to) {
  return rename_fails(to) ? -1 : next<int(const char*, const char*)>("rename")(from, to);
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) {
  return rename_fails(to) ? -1
                          : next<int(int, const char*, int, const char*)>("renameat")(from_folder, from, to_folder, to);
}

}  // extern "C"
