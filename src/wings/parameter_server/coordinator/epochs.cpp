#include "wings/parameter_server/coordinator/epochs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/fail.h"

namespace cohort {

namespace {

constexpr const char* kPrefix = "epoch.";

// Returns the epoch in a file's name, or 0 if the file is not one of ours.
uint64_t epoch_in(const std::string& name) {
  if (!name.starts_with(kPrefix)) return 0;
  uint64_t epoch = 0;
  const char* const begin = name.data() + std::strlen(kPrefix);
  const char* const end = name.data() + name.size();
  const auto read = std::from_chars(begin, end, epoch);
  return read.ec == std::errc() && read.ptr == end ? epoch : 0;
}

std::vector<uint64_t> epochs_in(const std::filesystem::path& directory) {
  std::vector<uint64_t> found;
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    if (const uint64_t epoch = epoch_in(at->path().filename().string()); epoch > 0) found.push_back(epoch);
  }
  if (error) fail<Unavailable>("[coordinator] ", directory.string(), ": cannot be read: ", error.message());
  return found;
}

// Returns whether this call has made the file: there was none of its name.
bool create(const std::filesystem::path& file) {
  const int handle = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (handle < 0 && errno != EEXIST) {
    fail<Unavailable>("[coordinator] ", file.string(), ": cannot be created: ", std::strerror(errno));
  }
  if (handle >= 0) ::close(handle);
  return handle >= 0;
}

}  // namespace

std::filesystem::path Epochs::file_of(uint64_t epoch) const {
  return directory_ / (kPrefix + std::to_string(epoch));
}

uint64_t Epochs::latest() const {
  if (directory_.empty()) return 0;
  const std::vector<uint64_t> all = epochs_in(directory_);
  return all.empty() ? 0 : *std::max_element(all.begin(), all.end());
}

uint64_t Epochs::claim(uint64_t least) const {
  if (directory_.empty()) return least;
  uint64_t epoch = std::max(least, latest() + 1);
  while (!take(epoch)) epoch = std::max(epoch, latest()) + 1;
  remove_before(epoch);
  return epoch;
}

bool Epochs::take(uint64_t epoch) const {
  if (!create(file_of(epoch))) return false;
  // If this process was stopped before the file was there, a later coordinator may have removed another one's file of
  // the same number. Then the file of the later one is here, because the latest file stays.
  if (latest() != epoch) return false;
  flush_folder(directory_);
  return true;
}

void Epochs::remove_before(uint64_t epoch) const {
  for (const uint64_t each : epochs_in(directory_)) {
    std::error_code ignored;  // another coordinator removes them, too, and what is left does no harm
    if (each < epoch) std::filesystem::remove(file_of(each), ignored);
  }
}

}  // namespace cohort
