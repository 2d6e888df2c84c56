// The series of checkpoints in a directory: the folders NAME-STEP, and the file "checkpoint" with more about them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace cohort {

inline constexpr const char* kPointerFile = "checkpoint";

// The contents of the file "checkpoint". The folders decide which checkpoints there are, not this file.
struct CheckpointPointer {
  std::set<int64_t> kept;  // steps that are kept for good
  int64_t last_kept = 0;   // time of the last one, in seconds since 1970; 0: none
  bool finished = false;   // the series is complete
  std::string run;         // identifies the process that wrote last
};

// Returns the steps of the checkpoints in ascending order; none if there is no directory.
std::vector<int64_t> checkpoint_steps(const std::filesystem::path& directory, const std::string& name);

// Reads the file. If it is missing or damaged the result is empty.
CheckpointPointer read_pointer(const std::filesystem::path& directory);
// Writes the file to `draft` and renames it to `file`. Unavailable: it cannot be written.
void write_pointer(const std::filesystem::path& file, const std::filesystem::path& draft, const std::string& name,
                   const std::vector<int64_t>& steps, const CheckpointPointer& pointer);

}  // namespace cohort
