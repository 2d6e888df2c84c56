#include "device/numa.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>

#include "base/number_in.h"

namespace cohort {

namespace {

// Returns the first line of a file; nothing if it cannot be read.
std::optional<std::string> line_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  return line;
}

}  // namespace

std::optional<int> numa_node_of(const std::filesystem::path& sysfs, std::string_view pci_address) {
  std::string name(pci_address);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (name.empty() || name.find('/') != std::string::npos) return std::nullopt;
  const auto line = line_of(sysfs / "bus/pci/devices" / name / "numa_node");
  const auto node = line ? parse_int(*line) : std::nullopt;
  return node && *node >= 0 ? node : std::nullopt;  // -1: a machine without nodes, or not known
}

std::vector<int> processors_of_node(const std::filesystem::path& sysfs, int node) {
  const auto line = line_of(sysfs / "devices/system/node" / ("node" + std::to_string(node)) / "cpulist");
  return line ? parse_processors(*line).value_or(std::vector<int>()) : std::vector<int>();
}

std::optional<std::vector<int>> parse_processors(std::string_view text) {
  constexpr int kMost = CPU_SETSIZE;
  std::vector<int> list;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    const std::size_t dash = part.find('-');
    const auto first = parse_int(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_int(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMost) return std::nullopt;
    for (int each = *first; each <= *last; ++each) list.push_back(each);
  }
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

std::vector<int> to_bind(const std::vector<int>& near, const std::vector<int>& allowed) {
  std::vector<int> both;
  std::set_intersection(near.begin(), near.end(), allowed.begin(), allowed.end(), std::back_inserter(both));
  return both.size() == allowed.size() ? std::vector<int>() : both;
}

NearProcessors::NearProcessors(const std::vector<int>& near) {
  if (near.empty() || sched_getaffinity(0, sizeof(before_), &before_) != 0) return;
  std::vector<int> allowed;
  for (int each = 0; each < CPU_SETSIZE; ++each) {
    if (CPU_ISSET(each, &before_)) allowed.push_back(each);
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  const std::vector<int> bound = to_bind(near, allowed);
  for (const int each : bound) CPU_SET(each, &set);
  bound_ = !bound.empty() && sched_setaffinity(0, sizeof(set), &set) == 0;
}

NearProcessors::~NearProcessors() {
  if (bound_) sched_setaffinity(0, sizeof(before_), &before_);
}

}  // namespace cohort
