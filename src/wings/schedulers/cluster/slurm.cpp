#include <algorithm>
#include <numeric>

#include "base/fail.h"
#include "cluster/environment.h"
#include "cluster/host_list.h"
#include "cohort/cluster/scheduler_resolvers.h"
#include "cohort/device.h"
#include "device/visible_cards.h"
#include "rpc/address.h"

namespace cohort {

namespace {

constexpr const char* kNotSlurm = "not running inside a Slurm step? (start the program with srun)";

// The place where a task of a step runs.
struct Seat {
  std::string host;
  int on_node = 0;  // the index among the tasks of its node
};

struct SlurmStep {
  std::vector<Seat> seats;
  int most_per_node = 1;
};

std::string text_of(const Environment& variables, const char* name) {
  return require_variable(variables, name, "slurm", kNotSlurm);
}
int number_of(const Environment& variables, const char* name, int least) {
  return require_number(variables, name, "slurm", kNotSlurm, least);
}

std::vector<int> tasks_per_node(const SlurmOptions& options, std::size_t hosts, int tasks) {
  if (options.tasks_per_node) {
    const int each = *options.tasks_per_node;
    if (each < 1 || static_cast<std::size_t>(each) * hosts < static_cast<std::size_t>(tasks)) {
      fail<InvalidArgument>("[cluster] slurm: tasks_per_node is ", each, " on ", hosts, " nodes, the step has ", tasks,
                            " tasks");
    }
    std::vector<int> counts;
    for (int left = tasks; left > 0; left -= each) counts.push_back(std::min(each, left));
    return counts;
  }
  const std::string text = text_of(options.variables, "SLURM_STEP_TASKS_PER_NODE");
  std::vector<int> counts = expand_task_counts(text, "SLURM_STEP_TASKS_PER_NODE");
  const int sum = std::accumulate(counts.begin(), counts.end(), 0);
  if (counts.size() != hosts || sum != tasks) {
    fail<InvalidArgument>("[cluster] slurm: SLURM_STEP_TASKS_PER_NODE is \"", text, "\", which is ", sum, " tasks on ",
                          counts.size(), " nodes; the step has ", tasks, " tasks on ", hosts, " nodes");
  }
  return counts;
}

// Returns the seats of all ranks. They fill the nodes one after the other, or go round them (srun -m cyclic).
std::vector<Seat> seat(const std::vector<std::string>& hosts, const std::vector<int>& counts, bool cyclic) {
  std::vector<Seat> seats;
  if (!cyclic) {
    for (std::size_t node = 0; node < counts.size(); ++node) {
      for (int i = 0; i < counts[node]; ++i) seats.push_back({.host = hosts[node], .on_node = i});
    }
    return seats;
  }
  const int most = *std::max_element(counts.begin(), counts.end());
  for (int i = 0; i < most; ++i) {
    for (std::size_t node = 0; node < counts.size(); ++node) {
      if (i < counts[node]) seats.push_back({.host = hosts[node], .on_node = i});
    }
  }
  return seats;
}

SlurmStep read_step(const SlurmOptions& options) {
  const Environment& variables = options.variables;
  const int tasks = number_of(variables, "SLURM_STEP_NUM_TASKS", 1);
  const auto hosts = expand_host_list(text_of(variables, "SLURM_STEP_NODELIST"), "SLURM_STEP_NODELIST");
  const std::vector<int> counts = tasks_per_node(options, hosts.size(), tasks);
  const bool cyclic = variable(variables, "SLURM_DISTRIBUTION").value_or("").starts_with("cyclic");
  SlurmStep step{.seats = seat(hosts, counts, cyclic),
                 .most_per_node = *std::max_element(counts.begin(), counts.end())};

  const int rank = number_of(variables, "SLURM_PROCID", 0);
  if (rank >= tasks) {
    fail<InvalidArgument>("[cluster] slurm: SLURM_PROCID is ", rank, ", but the step has ", tasks, " tasks");
  }
  const std::string& expected = step.seats[static_cast<std::size_t>(rank)].host;
  const std::string actual = variable(variables, "SLURMD_NODENAME").value_or(expected);
  if (actual == expected) return step;
  fail<FailedPrecondition>("[cluster] slurm: task ", rank, " runs on ", actual, " and should be on ", expected,
                           " by SLURM_STEP_NODELIST; distributions other than block and cyclic are not known, ",
                           "start with srun -m block");
}

// Returns the task of each rank. The jobs follow each other, sorted by name.
std::vector<TaskId> assign(const SlurmOptions& options, std::size_t tasks) {
  std::map<std::string, int> jobs = options.jobs;
  if (jobs.empty()) jobs["worker"] = static_cast<int>(tasks);
  std::vector<TaskId> assigned;
  for (const auto& [job, count] : jobs) {
    for (int i = 0; i < count; ++i) assigned.push_back({job, i});
  }
  if (assigned.size() == tasks) return assigned;
  fail<InvalidArgument>("[cluster] slurm: the jobs want ", assigned.size(), " tasks, the step has ", tasks);
}

std::vector<int> gpus_on_node(const SlurmOptions& options) {
  std::vector<int> gpus;
  const auto visible = variable(options.variables, kVisibleCards);
  if (!visible && options.gpus_per_node) {  // as the user says, who may know more than this process sees
    gpus.resize(static_cast<std::size_t>(std::max(0, *options.gpus_per_node)));
    std::iota(gpus.begin(), gpus.end(), 0);
    return gpus;
  }
  if (visible) {
    for (const VisibleCard& card : parse_visible_cards(*visible)) {
      const bool numbered = card.kind == VisibleCard::Kind::kIndex;
      gpus.push_back(numbered ? card.index : static_cast<int>(gpus.size()));  // a UUID stands for its position
    }
  } else {
    for (const PhysicalDevice& device : list_physical_devices("GPU")) gpus.push_back(device.index);
  }
  const int there = static_cast<int>(gpus.size());
  const int wanted = options.gpus_per_node.value_or(there);
  if (wanted > there) {
    fail<InvalidArgument>("[cluster] slurm: gpus_per_node is ", wanted, ", this node has ", there);
  }
  gpus.resize(static_cast<std::size_t>(wanted));
  return gpus;
}

}  // namespace

ClusterSpec SlurmResolver::cluster_spec() const {
  const SlurmStep step = read_step(options_);
  const std::vector<TaskId> tasks = assign(options_, step.seats.size());
  std::map<std::string, ClusterSpec::Tasks> jobs;
  for (std::size_t rank = 0; rank < tasks.size(); ++rank) {
    const Address address{step.seats[rank].host, options_.port_base + step.seats[rank].on_node};
    jobs[tasks[rank].type][tasks[rank].index] = address.to_string();
  }
  return ClusterSpec(std::move(jobs));
}

std::optional<TaskId> SlurmResolver::task() const {
  const SlurmStep step = read_step(options_);
  return assign(options_,
                step.seats.size())[static_cast<std::size_t>(number_of(options_.variables, "SLURM_PROCID", 0))];
}

std::vector<int> SlurmResolver::visible_gpus() const {
  const SlurmStep step = read_step(options_);
  const std::vector<int> node = gpus_on_node(options_);
  const int there = static_cast<int>(node.size());
  const int each = options_.gpus_per_task.value_or(there / step.most_per_node);
  if (each * step.most_per_node > there) {
    fail<InvalidArgument>("[cluster] slurm: gpus_per_task is ", each, " for up to ", step.most_per_node,
                          " tasks a node, this node has ", there, " GPUs");
  }
  const int rank = number_of(options_.variables, "SLURM_PROCID", 0);
  const auto first = node.begin() + step.seats[static_cast<std::size_t>(rank)].on_node * each;
  return {first, first + each};
}

std::map<std::string, int> SlurmResolver::num_accelerators() const {
  const int count = static_cast<int>(visible_gpus().size());
  return count == 0 ? std::map<std::string, int>{} : std::map<std::string, int>{{"GPU", count}};
}

}  // namespace cohort
