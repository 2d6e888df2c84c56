// Whole values and slots of variables, as checkpoints have them, and their transfer to and from servers.
#pragma once

#include <torch/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "wings/parameter_server/catalog.h"
#include "wings/parameter_server/client/client.h"

namespace cohort {

struct SavedVariable {
  torch::Tensor value;
  std::vector<torch::Tensor> slots = {};  // slots in the order of the optimizer's slot names; empty: the initial ones
  int64_t iterations = 0;
  std::string slot_names = {};  // the names in a checkpoint; empty in those that were written before 0.1
};

// Returns the names of the slots of a variable that this optimizer trains, as checkpoints note them.
std::string slot_names(const Optimizer& optimizer);
using SavedVariables = std::map<std::string, SavedVariable>;

// Throws NotFound or InvalidArgument if a variable of the catalog is missing or has another shape or dtype. Variables
// with an initializer may be missing.
void require_fit(const Catalog& catalog, const SavedVariables& saved);

// A shard for a server, and the order to take it.
struct ShardToInstall {
  std::size_t shard = 0;
  int server = 0;
  parameter_server::Order order = {};
};

// Makes a shard on a server, from the saved values or else with the variable's initializer. Updates of closures before
// `next_closure` are contained in it.
void install_shard(ServerClient& client, const Catalog& catalog, const ShardToInstall& target,
                   const SavedVariables& saved, int64_t next_closure, std::chrono::milliseconds limit);

// Returns everything that the servers have, from the primaries of the client's view. Nobody may be training.
SavedVariables collect(ServerClient& client, const Catalog& catalog, std::chrono::milliseconds limit);

}  // namespace cohort
