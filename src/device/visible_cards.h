// CUDA_VISIBLE_DEVICES: which GPUs CUDA shows a process, and in which order.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cohort {

inline constexpr const char* kVisibleCards = "CUDA_VISIBLE_DEVICES";

// An entry of the variable.
struct VisibleCard {
  enum class Kind {
    kIndex,  // "2", the number of a GPU of the machine
    kUuid,   // "GPU-8932f937-...", or its beginning
    kMig,    // "MIG-...", an instance of a GPU, or "MIG-GPU-.../1/0", its older name
  };
  Kind kind = Kind::kIndex;
  int index = -1;    // the number, of the kind kIndex
  std::string name;  // the entry as it stands there
};

// Parses the variable's value. An empty text, "-1" and Slurm's "NoDevFiles" hide every GPU. InvalidArgument: an entry
// is none of these, or is there twice; CUDA would hide all GPUs from there on, or all of them, and say nothing.
std::vector<VisibleCard> parse_visible_cards(std::string_view text);

// Returns why CUDA may show fewer GPUs than the machine has, as a sentence for messages and lists: that the variable
// hides them, that entries of it are not known to the driver, or that only one instance of a GPU is used by a process.
// `count` are the GPUs that CUDA shows. Empty: nothing is hidden.
std::string why_cards_are_hidden(const std::optional<std::string>& variable, int count);

}  // namespace cohort
