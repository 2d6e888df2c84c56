#include "checkpoint/writer_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/draw.h"
#include "base/fail.h"
#include "checkpoint/writer_lock.h"
#include "cluster/own_host.h"

namespace cohort {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = ".writer-";
constexpr std::size_t kEpochDigits = 10;
// For the removal of an earlier writer's folder, to which that writer may still add files.
constexpr std::chrono::milliseconds kTakingOver = std::chrono::seconds(30);

// Returns the names of the folders of writers in ascending order.
std::vector<std::string> writers_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    if (WriterFolder::is_name(name)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

uint64_t epoch_of(const std::string& name) {
  return std::stoull(name.substr(kPrefix.size(), kEpochDigits));
}

// Puts back what a writer had put aside while it replaced it, and removes its other drafts and its folder. Fails with
// "directory not empty" if the writer has added something meanwhile.
std::error_code remove_writer(const fs::path& folder, const fs::path& directory) {
  std::error_code ignored;
  std::vector<fs::path> drafts;
  for (fs::directory_iterator at(folder, ignored), end; !ignored && at != end; at.increment(ignored)) {
    drafts.push_back(at->path());
  }
  for (const fs::path& draft : drafts) {
    const fs::path whole = directory / draft.stem();
    const bool put_aside = draft.extension() == WriterFolder::kBefore && !fs::exists(whole, ignored);
    if (put_aside) fs::rename(draft, whole, ignored);
    if (!put_aside || ignored) fs::remove_all(draft, ignored);
  }
  std::error_code error;
  fs::remove(folder, error);
  return error;
}

}  // namespace

bool WriterFolder::is_name(const std::string& name) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return name.starts_with(kPrefix) && name.size() > kPrefix.size() + kEpochDigits &&
         std::all_of(name.begin() + kPrefix.size(), name.begin() + kPrefix.size() + kEpochDigits, digit);
}

WriterFolder::WriterFolder(fs::path directory) : directory_(std::move(directory)) {
  make();
  take_over();
}

WriterFolder::~WriterFolder() {
  std::error_code ignored;
  if (!own_.empty()) fs::remove_all(own_, ignored);
}

void WriterFolder::make() {
  const std::vector<std::string> others = writers_in(directory_);
  const uint64_t epoch = others.empty() ? 1 : epoch_of(others.back()) + 1;
  const fs::path own = directory_ / fmt::format("{}{:0{}}-{:016x}", kPrefix, epoch, kEpochDigits, draw_number());
  std::error_code error;
  fs::create_directory(own, error);
  if (error == std::errc::no_space_on_device || error.value() == EDQUOT) return;
  if (error) fail<Unavailable>("[checkpoint] ", own.string(), ": cannot be made: ", error.message());
  own_ = own;
}

void WriterFolder::take_over() {
  const Deadline deadline(kTakingOver);
  const std::string name = own_.filename();
  std::vector<std::string> others = writers_in(directory_);
  while (!others.empty() && others != std::vector{name}) {
    if (!name.empty() && others.back() != name) fail_as_not_the_last();
    if (!name.empty()) others.pop_back();
    for (const std::string& other : others) {
      const std::error_code error = remove_writer(directory_ / other, directory_);
      if (error && deadline.passed()) {
        fail<Unavailable>("[checkpoint] ", (directory_ / other).string(),
                          ", the drafts of an earlier writer, cannot be ", "removed: ", error.message());
      }
    }
    others = writers_in(directory_);
  }
}

void WriterFolder::fail_as_not_the_last() const {
  std::error_code ignored;
  const std::string cause = fs::exists(directory_ / WriterLock::kFile, ignored)
                                ? WriterLock::holder_of(directory_) + " has taken it over"
                                : "another run has taken it over meanwhile, or it was removed";
  fail<FailedPrecondition>("[checkpoint] ", directory_.string(), " is no longer written by ", this_process(), ": ",
                           cause, "; what this run saves would not belong to the checkpoints that are there now");
}

fs::path WriterFolder::draft(const std::string& name) {
  if (own_.empty()) make();
  if (own_.empty()) {
    fail<Unavailable>("[checkpoint] ", directory_.string(), ": has no room for a draft of ", name);
  }
  return own_ / name;
}

void WriterFolder::publish(const std::function<void()>& action) const {
  try {
    action();
  } catch (const Error&) {
    if (!is_last()) fail_as_not_the_last();
    throw;
  }
}

void WriterFolder::withdraw(const std::string& name) {
  std::error_code error;
  if (own_.empty()) {
    fs::remove_all(directory_ / name, error);  // whose room the next draft needs
  } else {
    const fs::path hidden = draft(name);
    fs::remove_all(hidden, error);
    fs::rename(directory_ / name, hidden, error);
    if (!error) fs::remove_all(hidden, error);
    if (error && !is_last()) fail_as_not_the_last();
  }
  if (error) fail<Unavailable>("[checkpoint] ", (directory_ / name).string(), " cannot be removed: ", error.message());
}

// Returns whether nobody has removed the folder.
bool WriterFolder::is_last() const {
  std::error_code error;
  return own_.empty() || fs::exists(own_, error);
}

}  // namespace cohort
