#include "cohort/cluster/sharded_variable.h"

#include <ATen/Functions.h>

#include "base/fail.h"
#include "base/hash.h"
#include "device/host_random.h"
#include "wings/parameter_server/state.h"

namespace cohort {

namespace {

constexpr double kLimit = 0.05;         // Keras' uniform initializer
constexpr int64_t kRowsOfADraw = 1024;  // so many rows share one stream of random numbers

// Fills rows with values that depend on the number of the row and the seed alone, however the table is cut.
void fill_uniform(const torch::Tensor& rows, int64_t first_row, uint64_t seed) {
  const int64_t end = first_row + rows.size(0);
  for (int64_t draw = first_row / kRowsOfADraw; draw * kRowsOfADraw < end; ++draw) {
    std::vector<int64_t> shape = rows.sizes().vec();
    shape[0] = kRowsOfADraw;
    const std::string stream = c10::str(seed, '/', draw);
    at::Generator generator = make_host_generator(hash_of(stream));
    const torch::Tensor values = at::empty(shape, rows.scalar_type()).uniform_(-kLimit, kLimit, generator);
    const int64_t from = std::max(first_row, draw * kRowsOfADraw);
    const int64_t to = std::min(end, (draw + 1) * kRowsOfADraw);
    rows.narrow(0, from - first_row, to - from).copy_(values.narrow(0, from - draw * kRowsOfADraw, to - from));
  }
}

}  // namespace

ShardedVariable ParameterServerStrategy::sharded_variable(const ShardedVariableOptions& options) const {
  if (options.shape.empty()) {
    fail<InvalidArgument>("[parameter server] ", options.name, ": a sharded variable has rows, got a scalar");
  }
  ServerVariable variable{.name = options.name,
                          .shape = options.shape,
                          .dtype = options.dtype,
                          .optimizer = options.optimizer,
                          .initializer = options.initializer};
  const auto rank = static_cast<int64_t>(options.shape.size());
  if (options.optimizer) {
    variable.treatment = {.decay = options.optimizer->decays(options.name, rank),
                          .adapt = options.optimizer->adapts(options.name, rank)};
  }
  if (!variable.initializer) {
    variable.initializer = [seed = options.seed](const torch::Tensor& rows, int64_t first_row) {
      fill_uniform(rows, first_row, seed);
    };
  }
  return {state_, state_->variables().declare_rows(std::move(variable))};
}

const std::string& ShardedVariable::name() const {
  return state_->variables().catalog().variables().at(variable_).name;
}

const std::vector<int64_t>& ShardedVariable::shape() const {
  return state_->variables().catalog().variables().at(variable_).shape;
}

std::vector<int64_t> ShardedVariable::part_rows() const {
  const Catalog& catalog = state_->variables().catalog();
  const auto [first, last] = catalog.shards_of(variable_);
  std::vector<int64_t> rows;
  for (std::size_t shard = first; shard < last; ++shard) rows.push_back(catalog.shards()[shard].spec.shape.front());
  return rows;
}

torch::Tensor ShardedVariable::lookup(const torch::Tensor& indices) const {
  return state_->variables().look_up(variable_, indices);
}

}  // namespace cohort
