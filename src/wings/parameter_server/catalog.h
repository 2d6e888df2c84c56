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
#include "wings/parameter_server/server/shard.h"

namespace cohort {

struct ServerVariable {
  std::string name;
  std::vector<int64_t> shape;
  torch::ScalarType dtype = torch::kFloat;
  // The optimizer of a trained variable. If there is none, only assign and add change the variable.
  std::optional<Optimizer> optimizer = std::nullopt;
  Treatment treatment = {};  // the optimizer's treatment of it
  // With true, it is read and updated by rows (embeddings). Other variables move whole, in blocks that fit a message.
  bool by_rows = false;
  // Fills the rows of a shard, the first of which is row `first_row` of the variable. Servers call it, so it has to
  // give the same values on every server and in every run. If it is empty the coordinator gives the values.
  std::function<void(const torch::Tensor& rows, int64_t first_row)> initializer = {};
};

// The place of a shard in its variable, and the server that has it.
struct ShardInfo {
  std::size_t variable = 0;
  int64_t part = 0;       // the index of the part that the partitioner made
  int64_t first_row = 0;  // its first row within the variable
  int home = 0;           // an index of View::homes
  ShardSpec spec;
};

// One thread declares the variables; afterwards the catalog is constant and thread-safe.
class Catalog {
 public:
  // Makes a catalog for `num_servers` servers, which get the parts of variables round robin, in the order of
  // declaration. `partitioner` cuts the variables, unless it is empty.
  explicit Catalog(int num_servers, Partitioner partitioner = {});

  // Declares a variable and returns its number. InvalidArgument: the name is taken, the partitioner's answer does not
  // fit, or the optimizer needs the norm of a variable that is cut.
  std::size_t declare(ServerVariable variable);

  int num_servers() const { return num_servers_; }
  const std::vector<ServerVariable>& variables() const { return variables_; }
  const std::vector<ShardInfo>& shards() const { return shards_; }
  // Returns the range [first, last) of the shards of a variable.
  std::pair<std::size_t, std::size_t> shards_of(std::size_t variable) const;
  // Returns the shards of a home, in ascending order.
  std::vector<std::size_t> shards_at(int home) const;
  const Optimizer& optimizer_of(std::size_t shard) const;

  // Returns a line for each variable, with everything that has to be the same on all tasks.
  std::string description() const;

 private:
  int num_servers_;
  Partitioner partitioner_;
  int64_t parts_ = 0;
  std::vector<ServerVariable> variables_;
  std::vector<std::size_t> first_shard_;
  std::vector<ShardInfo> shards_;
};

// Returns the first difference of two descriptions for an error message. `theirs` is the other task's.
std::string difference(const std::string& ours, const std::string& theirs);

}  // namespace cohort
