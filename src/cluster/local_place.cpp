#include "cluster/local_place.h"

#include <algorithm>
#include <numeric>

#include "base/fail.h"
#include "cluster/environment.h"
#include "cluster/host_list.h"

namespace cohort {

namespace {

constexpr const char* kSpeaker = "local place";

// Returns the number of tasks that a Slurm step has on this node.
int slurm_tasks_here(const Environment& variables) {
  constexpr const char* kCounts = "SLURM_STEP_TASKS_PER_NODE";
  const auto text = variable(variables, kCounts);
  if (!text || !variable(variables, "SLURM_NODEID")) return 0;
  const std::vector<int> counts = expand_task_counts(*text, kCounts);
  const auto node = static_cast<std::size_t>(require_number(variables, "SLURM_NODEID", kSpeaker, ""));
  return node < counts.size() ? counts[node] : 0;
}

LocalPlace read_place(const Environment& variables, const char* rank, const char* size) {
  LocalPlace place{.rank = require_number(variables, rank, kSpeaker, ""), .size = 0};
  if (variable(variables, size)) place.size = require_number(variables, size, kSpeaker, "", 1);
  return place;
}

}  // namespace

LocalPlace local_place(const Environment& variables) {
  struct Names {
    const char* rank;
    const char* size;
  };
  for (const Names& names :
       {Names{"LOCAL_RANK", "LOCAL_WORLD_SIZE"}, Names{"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
        Names{"MPI_LOCALRANKID", "MPI_LOCALNRANKS"}, Names{"MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"},
        Names{"PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"}}) {
    if (!variable(variables, names.rank)) continue;
    const LocalPlace place = read_place(variables, names.rank, names.size);
    if (place.size == 0 || place.rank < place.size) return place;
    fail<InvalidArgument>("[cluster] ", kSpeaker, ": ", names.rank, " is ", place.rank, " and ", names.size, " is ",
                          place.size, ", wanted a rank below the size");
  }
  const bool step = variable(variables, "SLURM_STEP_NUM_TASKS") && variable(variables, "SLURM_LOCALID");
  if (!step) return {};
  return {.rank = require_number(variables, "SLURM_LOCALID", kSpeaker, ""), .size = slurm_tasks_here(variables)};
}

std::vector<int> gpus_of_worker(int visible, int wanted, const LocalPlace& place) {
  const bool divided = place.size > 1 && visible >= place.size;
  const int each = wanted > 0 ? wanted : divided ? visible / place.size : visible;
  std::vector<int> gpus(static_cast<std::size_t>(each));
  if (visible <= each) {
    std::iota(gpus.begin(), gpus.end(), 0);
    return gpus;
  }
  const int workers = std::max(place.size, place.rank + 1);
  if (each * workers > visible) {
    fail<InvalidArgument>("[cluster] ", workers, " workers on this machine want ", each, " GPUs each, but ", visible,
                          " are visible to worker ", place.rank, " of them; show each worker its own by ",
                          "CUDA_VISIBLE_DEVICES, or use fewer");
  }
  std::iota(gpus.begin(), gpus.end(), place.rank * each);
  return gpus;
}

}  // namespace cohort
