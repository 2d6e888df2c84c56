// Catalog: the variables that a program keeps on parameter servers, and how they are cut into shards. Every task runs
// the same program, so that all have the same catalog; what crosses the wire are numbers of shards.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cohort/cluster/partitioners.h"
#include "cohort/optimizer.h"
#include "parameter_server/server/shard.h"

namespace cohort {

struct ServerVariable {
  std::string name;
  std::vector<int64_t> shape;
  torch::ScalarType dtype = torch::kFloat;
  // Of trained variables; nothing: changed by assign and add only.
  std::optional<Optimizer> optimizer = std::nullopt;
  bool decay = true;  // weight decay applies
  // Read and updated by rows (embeddings). Others move whole, and are cut further into blocks that fit a message.
  bool by_rows = false;
  // Fills rows of a shard, the first of which is `first_row` of the variable; called by the servers. Has to give the
  // same on every server and in every run. Empty: the coordinator gives the values.
  std::function<void(const torch::Tensor& rows, int64_t first_row)> initializer = {};
};

// A shard's place.
struct ShardInfo {
  std::size_t variable = 0;
  int64_t part = 0;       // as the partitioner cuts it
  int64_t first_row = 0;  // of the variable
  int home = 0;           // counts the servers: View::homes
  ShardSpec spec;
};

// Used by one thread while variables are declared; constant afterwards.
class Catalog {
 public:
  // Parts go round robin to the servers, in the order of their declaration. The first declared is cut by
  // `partitioner`, where it is not empty.
  explicit Catalog(int num_servers, Partitioner partitioner = {});

  // The variable's number. InvalidArgument: the name is there, the partitioner's answer does not fit, or the optimizer
  // needs norms of a variable that is cut.
  std::size_t declare(ServerVariable variable);

  int num_servers() const { return num_servers_; }
  const std::vector<ServerVariable>& variables() const { return variables_; }
  const std::vector<ShardInfo>& shards() const { return shards_; }
  // Of a variable: [first, last).
  std::pair<std::size_t, std::size_t> shards_of(std::size_t variable) const;
  // Of a home, ascending.
  std::vector<std::size_t> shards_at(int home) const;
  const Optimizer& optimizer_of(std::size_t shard) const;

  // A line for each variable, which says everything that has to be the same on all tasks.
  std::string description() const;

 private:
  int num_servers_;
  Partitioner partitioner_;
  int64_t parts_ = 0;
  std::vector<ServerVariable> variables_;
  std::vector<std::size_t> first_shard_;
  std::vector<ShardInfo> shards_;
};

// What differs first between two descriptions, for the message that refuses them: "theirs" is the other task's.
std::string difference(const std::string& ours, const std::string& theirs);

}  // namespace cohort
