// TensorUpdate: the update of whole flat parameters on a device, and where there is no range for each replica to
// update.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cohort/optimizer.h"
#include "optimizer/update_rule.h"
#include "step/flat_parameters.h"
#include "step/scaling.h"
#include "step/update/layers.h"
#include "step/verdict.h"

namespace cohort {

// One holder's parameters and slots.
class TensorUpdate {
 public:
  // The squared norms of the sums for each parameter, of which others may have parts, one dimension of doubles on the
  // sums' device, and of all parameters where others have some; `sums` as update() takes them.
  struct Norms {
    torch::Tensor squares = {};
    torch::Tensor all = {};  // undefined: the sum of `squares`
  };
  using SquaredNorms = std::function<Norms(const std::vector<torch::Tensor>& sums)>;

  // Updates `values`, flat, one a group of `flat`; the slots lie on the same devices.
  TensorUpdate(const FlatParameters& flat, const Optimizer& rule, std::vector<torch::Tensor> values);

  const std::vector<torch::Tensor>& values() const { return values_; }
  // Returns the slots, [group][slot], flat.
  const std::vector<std::vector<torch::Tensor>>& slots() const { return slots_; }
  void copy_slots(const TensorUpdate& other);

  // How a parameter's parts belong together, as StepContext has it.
  struct Cut {
    const std::function<void(torch::Tensor& numbers)>* add_up = nullptr;  // null: it is whole
    int64_t dim = 0;
    int64_t parts = 1;
  };
  using CutOf = std::function<Cut(std::size_t parameter)>;

  // Says so of all parameters; without it all are whole.
  void set_parts(CutOf cut_of);

  // `sums` are the summed gradients, flat, one a group; the rule may overwrite them. Returns whether there was an
  // update: with a loss scale there is none by sums that are not finite. `norms`, where it is needed, is called instead
  // of the norms of the sums; without it these are those of whole parameters. Never waits for a device. `numbers`,
  // where the update is captured as a part of a graph, are numbers() of each run, on the device.
  Verdict update(const std::vector<torch::Tensor>& sums, StepContext context, const SquaredNorms& norms = {},
                 const torch::Tensor& numbers = {});

  // Returns whether the update can be captured so: whether it is kernels that read numbers from the device's memory.
  bool reads_numbers() const;
  // Returns the numbers of an update.
  std::vector<double> numbers(const StepContext& context) const;

  // Returns whether the update of any parameter needs all sums: for clipping by the norm of all, and for a loss scale.
  bool needs_all() const;
  // Updates some whole parameters, in the order of the flat memory, where needs_all() is false: the same bits as of
  // update().
  void update_some(const std::vector<torch::Tensor>& sums, std::span<const std::size_t> parameters,
                   const StepContext& context);

 private:
  // Parameters of one group, in the order of the flat memory.
  void update_runs(std::span<const std::size_t> parameters, const torch::Tensor& sums, const StepContext& context,
                   const DeviceScaling& scaling, const torch::Tensor& squares);
  void update_members(std::size_t group, std::size_t first, std::size_t last, const torch::Tensor& sums,
                      StepContext context, DeviceScaling scaling, const torch::Tensor& squares);
  void find_layers();
  void join_norms(std::size_t group, LayerTables::Range range) const;
  // Returns those of a parameter's treatment, of all numbers.
  torch::Tensor numbers_of(const torch::Tensor& numbers, std::size_t parameter) const;

  const FlatParameters& flat_;
  Optimizer rule_;
  std::vector<torch::Tensor> values_;
  std::vector<std::vector<torch::Tensor>> slots_;
  std::vector<std::unique_ptr<LayerTables>> layers_;  // [group]; null where kernels make no norms of parameters
  std::vector<bool> is_layer_;                        // [parameter]: kernels update it by its norms
  std::vector<Treatment> treatments_;                 // those of numbers()
  CutOf cut_of_;
};

// What one call of a rule updates: a run of elements, or a whole parameter where the rule takes such.
struct UpdateRun {
  torch::Tensor values;
  torch::Tensor gradient;            // the rule may overwrite it
  std::vector<torch::Tensor> slots;  // those that UpdateRule::slots() names, and behind them the master if there is one
  Treatment treatment;
  // Whole parameters that kernels update by norms of each one, and what joins these; see UpdateRule::update_layers().
  // The treatments are those of the layers.
  std::optional<kernels::Layers> layers = {};
  std::vector<torch::Tensor> tables = {};  // the memory of `layers`
  std::shared_ptr<const void> own = {};    // keeps Layers::own
  std::function<void()> join = {};
};

// Returns whether kernels other than the host's reach parameters of the type on the device.
bool kernels_reach(torch::ScalarType dtype, torch::Device device);

// Updates a run, with the factor of clipping and where the sums are finite: by kernels on devices whose memory they
// reach, by the host's where parameters of half precision lie there, else by tensor operations. Never waits for a
// device.
void update_run(const UpdateRule& rule, const UpdateRun& run, const DeviceScaling& scaling, StepContext context);

}  // namespace cohort
