#include "checkpoint/writer_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "base/deadline.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/regular_file.h"
#include "cluster/own_host.h"

namespace cohort {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLook(200);
// The additional patience for locks of other machines. NFS releases a lock when its client has not renewed the lease,
// which usually lasts 90 s.
constexpr milliseconds kLease = std::chrono::minutes(2);

std::string boot_of_this_machine() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot;
}

// The contents of the lock's file: the process and the boot of its machine, one line each.
struct Holder {
  std::string process = "another process";
  std::string boot;
};

Holder read_holder(const std::filesystem::path& file) {
  Holder holder;
  std::istringstream in(read_regular_file(file, "checkpoint").value_or(""));
  std::string line;
  if (std::getline(in, line) && !line.empty()) holder.process = line;
  std::getline(in, holder.boot);
  return holder;
}

}  // namespace

WriterLock::WriterLock(const std::filesystem::path& directory, milliseconds patience) : file_(directory / kFile) {
  const auto begin = Deadline::Clock::now();
  bool told = false;
  while (!attempt()) {
    const Holder holder = read_holder(file_);
    const bool here = holder.boot == boot_of_this_machine();
    const milliseconds limit = here ? patience : patience + kLease;
    const std::string folder = file_.parent_path().string();
    if (Deadline::Clock::now() - begin >= limit) {
      fail<FailedPrecondition>("[checkpoint] ", folder, " is written by ", holder.process,
                               ", which has not ended within ", to_text(limit),
                               ": two runs in one folder would delete each other's checkpoints; "
                               "give this one a folder of its own");
    }
    if (!std::exchange(told, true)) {
      log().warn("[checkpoint] {} is written by {}: waits up to {} for its end", folder, holder.process,
                 to_text(limit));
    }
    std::this_thread::sleep_for(std::min(kLook, limit));
  }
}

std::string WriterLock::holder_of(const std::filesystem::path& directory) {
  return read_holder(directory / kFile).process;
}

// Tries to take the lock. Returns false while another process has it.
bool WriterLock::attempt() {
  descriptor_ = open_own_file(file_, O_RDWR | O_CREAT, "checkpoint");
  if (descriptor_ < 0 && (errno == ENOSPC || errno == EDQUOT)) {
    log().warn("[checkpoint] {} has no room for its lock: nothing keeps a second run out of this folder",
               file_.parent_path().string());
    return true;  // the disk is full, but excess checkpoints will be deleted
  }
  if (descriptor_ < 0) {
    fail<Unavailable>("[checkpoint] ", file_.string(), ": cannot be opened: ", std::strerror(errno));
  }
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  const bool locked = ::fcntl(descriptor_, F_OFD_SETLK, &whole) == 0;
  const int code = errno;
  if (!locked && code != EAGAIN && code != EACCES && code != EINTR) {
    log().warn("[checkpoint] {} cannot be locked ({}): nothing keeps a second run out of this folder", file_.string(),
               std::strerror(code));
    ::close(std::exchange(descriptor_, -1));
    return true;
  }
  // The former holder may have removed the file in between. Then this lock is on a file without a name.
  if (!locked || !is_in_place()) {
    ::close(std::exchange(descriptor_, -1));
    return false;
  }
  sign();
  return true;
}

// Returns whether the file still has its name.
bool WriterLock::is_in_place() const {
  struct stat own {};
  struct stat named {};
  return ::fstat(descriptor_, &own) == 0 && ::stat(file_.c_str(), &named) == 0 && own.st_ino == named.st_ino &&
         own.st_dev == named.st_dev;
}

void WriterLock::sign() const {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> since{};
  std::strftime(since.data(), since.size(), "%Y-%m-%d %H:%M:%S UTC", &utc);
  const std::string text = c10::str(this_process(), ", since ", since.data(), "\n", boot_of_this_machine(), "\n");
  // The contents are for people, so a full disk does not prevent the lock.
  [[maybe_unused]] const ssize_t written = ::pwrite(descriptor_, text.data(), text.size(), 0);
  [[maybe_unused]] const int cut = ::ftruncate(descriptor_, static_cast<off_t>(text.size()));
}

WriterLock::~WriterLock() {
  if (descriptor_ < 0) return;
  if (is_in_place()) ::unlink(file_.c_str());
  ::close(descriptor_);
}

}  // namespace cohort
