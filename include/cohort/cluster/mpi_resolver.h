// MpiResolver: the processes that a launcher of MPI started.
#pragma once

#include <optional>
#include <string_view>

#include "cohort/cluster/cluster_resolver.h"

namespace cohort {

struct MpiOptions {
  Environment variables = process_environment();  // the variables that are read
};

// Reads what mpirun tells a process that it started (Open MPI, MPICH and others over PMI): all tasks are workers. Only
// worker 0 has an address: MASTER_ADDR and MASTER_PORT where they are exported, else what MPI itself tells (builds with
// MPI).
class MpiResolver final : public ClusterResolver {
 public:
  explicit MpiResolver(MpiOptions options = {}) : options_(std::move(options)) {}
  std::string_view name() const override { return "mpi"; }
  ClusterSpec cluster_spec() const override;
  std::optional<TaskId> task() const override;

 private:
  MpiOptions options_;
};

}  // namespace cohort
