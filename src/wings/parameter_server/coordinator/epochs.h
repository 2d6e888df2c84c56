// Epochs: the numbers of the coordinators that have begun in a directory. Each number is given once, however many
// coordinators begin at a time, and whichever of them was stopped in the middle of it.
#pragma once

#include <cstdint>
#include <filesystem>

namespace cohort {

// An epoch is an empty file, "epoch.<number>". The file of the latest one is never removed.
class Epochs {
 public:
  // Uses this directory. With an empty path nothing is noted, and nothing found.
  explicit Epochs(std::filesystem::path directory) : directory_(std::move(directory)) {}

  // Returns the latest epoch that was claimed, or 0 if there is none. Unavailable: the directory cannot be read.
  uint64_t latest() const;
  // Claims an epoch that is later than all others and at least `least`, and removes the files of the earlier ones. It
  // survives a power failure when the call returns. Unavailable: the directory cannot be written to.
  uint64_t claim(uint64_t least) const;
  // Claims this epoch. Returns false if it, or a later one, has been claimed.
  bool take(uint64_t epoch) const;

 private:
  std::filesystem::path file_of(uint64_t epoch) const;
  void remove_before(uint64_t epoch) const;

  std::filesystem::path directory_;
};

}  // namespace cohort
