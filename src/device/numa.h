// The nodes of a machine's memory: which processors are near a card. What Linux says of them lies in files below /sys,
// whose folder is given to the functions.
#pragma once

#include <sched.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cohort {

inline constexpr const char* kSysfs = "/sys";

// Returns the node that a device of that PCI address ("0000:3b:00.0") is next to; nothing where there are no nodes, or
// Linux does not know.
std::optional<int> numa_node_of(const std::filesystem::path& sysfs, std::string_view pci_address);

// Returns the processors of a node, ascending; empty if it is not there.
std::vector<int> processors_of_node(const std::filesystem::path& sysfs, int node);

// Parses a list of processors as Linux writes it ("0-3,8,10-11"); nothing if it is no such list.
std::optional<std::vector<int>> parse_processors(std::string_view text);

// Returns those processors near a device that a thread may use, where that leaves some out but not all; empty
// otherwise: then there is nothing to bind.
std::vector<int> to_bind(const std::vector<int>& near, const std::vector<int>& allowed);

// While it lives, the calling thread and the threads that it starts run on the processors of the list that the thread
// may use. The memory that they touch first lies near these, too. Nothing happens where none is left, with an empty
// list, or where the system refuses.
class NearProcessors {
 public:
  explicit NearProcessors(const std::vector<int>& near);
  NearProcessors(const NearProcessors&) = delete;
  NearProcessors& operator=(const NearProcessors&) = delete;
  ~NearProcessors();

 private:
  cpu_set_t before_{};
  bool bound_ = false;
};

}  // namespace cohort
