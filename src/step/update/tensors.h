// TensorUpdate: the update by tensor operations, for devices and dtypes without kernels of ours.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "cohort/optimizer.h"
#include "optimizer/update_rule.h"
#include "step/flat_parameters.h"

namespace cohort {

// One holder's parameters and slots.
class TensorUpdate {
 public:
  // The squared norms of the sums for each parameter, of which others may have parts, and of all parameters where
  // others have some; `sums` as update() takes them.
  struct Norms {
    std::vector<double> squares = {};
    std::optional<double> all = std::nullopt;  // nullopt: the sum of `squares`
  };
  using SquaredNorms = std::function<Norms(const std::vector<torch::Tensor>& sums)>;

  // Updates `values`, flat, one a group of `flat`; the slots lie on the same devices.
  TensorUpdate(const FlatParameters& flat, const Optimizer& rule, std::vector<torch::Tensor> values);

  const std::vector<torch::Tensor>& values() const { return values_; }
  // Returns the slots, [group][slot], flat.
  const std::vector<std::vector<torch::Tensor>>& slots() const { return slots_; }
  void copy_slots(const TensorUpdate& other);

  // Returns what adds up squares of a parameter's parts (StepContext::add_up); null for a whole one.
  using AddsUp = std::function<const std::function<void(torch::Tensor& squares)>*(std::size_t parameter)>;

  // Says how parts of parameters belong together; without it all are whole.
  void set_parts(AddsUp adds_up) { adds_up_ = std::move(adds_up); }

  // `sums` are the summed gradients, flat, one a group; the rule may overwrite them. Returns false when
  // with a loss scale they are not finite, and nothing was updated. `norms`, where it is needed, is called instead of
  // the norms of the sums; without it these are those of whole parameters.
  bool update(const std::vector<torch::Tensor>& sums, StepContext context, const SquaredNorms& norms = {});

 private:
  void update_run(std::size_t group, std::size_t first, std::size_t last, const torch::Tensor& sums,
                  StepContext context, const std::vector<double>& squares);

  const FlatParameters& flat_;
  Optimizer rule_;
  std::vector<torch::Tensor> values_;
  std::vector<std::vector<torch::Tensor>> slots_;
  AddsUp adds_up_;
};

}  // namespace cohort
