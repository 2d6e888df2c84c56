// A directory's series of checkpoints: the folders NAME-STEP, and the file "checkpoint" that says more of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace cohort {

inline constexpr const char* kPointerFile = "checkpoint";

// The pointer file. The folders are what counts: it adds what they do not say.
struct CheckpointPointer {
  std::set<int64_t> kept;  // for good
  int64_t last_kept = 0;   // when the last of them was, in seconds since 1970; 0: none
  bool finished = false;   // whether no more will come
  std::string run;         // of the process that wrote last
};

// Steps of the checkpoints, ascending; none where there is no directory.
std::vector<int64_t> checkpoint_steps(const std::filesystem::path& directory, const std::string& name);

// A file that is not there or damaged says nothing.
CheckpointPointer read_pointer(const std::filesystem::path& directory);
// Unavailable: it cannot be written.
void write_pointer(const std::filesystem::path& directory, const std::string& name, const std::vector<int64_t>& steps,
                   const CheckpointPointer& pointer);

}  // namespace cohort
