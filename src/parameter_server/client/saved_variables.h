// Values and slots of variables, whole, as checkpoints have them; and the way of a shard's rows to a server.
#pragma once

#include <torch/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "parameter_server/catalog.h"
#include "parameter_server/client/client.h"

namespace cohort {

struct SavedVariable {
  torch::Tensor value;
  std::vector<torch::Tensor> slots = {};  // as the optimizer names them; empty: as they are at first
  int64_t iterations = 0;
};
using SavedVariables = std::map<std::string, SavedVariable>;

// InvalidArgument, NotFound: what the catalog has and this does not, or not in its shape or dtype. Variables with an
// initializer may be missing.
void require_fit(const Catalog& catalog, const SavedVariables& saved);

// Makes a shard on a server: from what is saved, else by the variable's initializer. `next_closure`: updates of earlier
// work are in it.
void install_shard(ServerClient& client, const Catalog& catalog, std::size_t shard, int server,
                   const SavedVariables& saved, int64_t next_closure, std::chrono::milliseconds limit);

// All that the servers have, asked of the primaries of the client's view; nobody may be training.
SavedVariables collect(ServerClient& client, const Catalog& catalog, std::chrono::milliseconds limit);

}  // namespace cohort
