#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/fail.h"
#include "cluster/environment.h"
#include "cluster/free_port.h"
#include "cohort/cluster/mpi_resolver.h"
#include "rpc/address.h"
#include "wings/mpi/cluster/mpi_runtime.h"

namespace cohort {

namespace {

// The environment variables in which a launcher of MPI tells a process its rank.
struct Names {
  const char* rank;
  const char* size;
  const char* local_size;
};
constexpr std::array<Names, 2> kLaunchers = {{
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
}};

struct World {
  int rank = 0;
  int size = 1;
  bool one_host = false;
};

World read_world(const Environment& variables) {
  constexpr const char* kHint = "not started by mpirun?";
  // The first launcher whose variables are set counts: below srun the processes of mpirun may have PMI's variables,
  // too.
  const auto* const told = std::find_if(kLaunchers.begin(), kLaunchers.end(), [&](const Names& launcher) {
    return variable(variables, launcher.size).has_value();
  });
  const Names* const names = told == kLaunchers.end() ? kLaunchers.begin() : told;
  World world;
  world.rank = require_number(variables, names->rank, "mpi", kHint);
  world.size = require_number(variables, names->size, "mpi", kHint, 1);
  world.one_host = variable(variables, names->local_size) == std::to_string(world.size);
  if (world.rank < world.size) return world;
  fail<InvalidArgument>("[cluster] mpi: ", names->rank, " is ", world.rank, " and ", names->size, " is ", world.size,
                        ", wanted a rank below the size");
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) fail<Unavailable>("[cluster] mpi: this host has no name");
  return name.data();
}

// Returns the address that rank 0 chooses and MPI carries to the other ranks.
std::string ask_mpi(const World& world) {
  if (!has_mpi()) {
    fail<FailedPrecondition>(
        "[cluster] mpi: nobody tells the address of rank 0: this build has no MPI, and ",
        "MASTER_ADDR and MASTER_PORT are not exported (mpirun -x MASTER_ADDR=... -x MASTER_PORT=...)");
  }
  static const std::string leader = [&] {
    require_mpi_size(world.size);
    if (world.rank != 0) return mpi_broadcast("");
    const std::string host = world.one_host ? "127.0.0.1" : host_name();
    return mpi_broadcast(Address{host, free_port(host)}.to_string());
  }();
  return leader;
}

}  // namespace

ClusterSpec MpiResolver::cluster_spec() const {
  const World world = read_world(options_.variables);
  std::vector<std::string> addresses(static_cast<std::size_t>(world.size));
  if (const auto host = variable(options_.variables, "MASTER_ADDR")) {
    addresses[0] =
        Address{*host, require_number(options_.variables, "MASTER_PORT", "mpi", "MASTER_ADDR is", 1)}.to_string();
  } else {
    addresses[0] = ask_mpi(world);
  }
  return ClusterSpec(std::map<std::string, std::vector<std::string>>{{"worker", addresses}});
}

std::optional<TaskId> MpiResolver::task() const {
  return TaskId{"worker", read_world(options_.variables).rank};
}

}  // namespace cohort
