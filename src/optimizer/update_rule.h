// UpdateRule: what distinguishes one optimizer from another. Its only state is its options; slots belong to the update
// (step/update), which also splits the work: on CPUs each replica updates its own range of the flat parameters.
#pragma once

#include <torch/types.h>

#include <any>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ops/kernels/reach.h"
#include "optimizer/kernels/update_table.h"

namespace cohort {

// The numbers that all elements of one update share.
struct StepContext {
  double learning_rate = 0.0;
  int64_t step = 1;         // 1 at the first update
  double grad_scale = 1.0;  // the gradient is multiplied by it as it is read (clipping by norm, averages)
  double clipvalue = 0.0;   // then clipped to [-clipvalue, clipvalue]; 0: not
  double l2 = 0.0;          // then l2 * p is added to it, where weight decay applies
  int64_t calls = 1;        // calls of minimize() that make this update
  // Adds up numbers over the replicas that have the other parts of the parameter; null: it is whole. For the update by
  // tensor operations.
  const std::function<void(torch::Tensor& numbers)>* add_up = nullptr;
  int64_t cut_dim = 0;  // the dimension that is cut then
  int64_t parts = 1;    // into so many equal parts
  // For the update by kernels, in memory that they reach: another factor of grad_scale, and whether there is an update
  // at all; null: 1, and there is one.
  const double* factor = nullptr;
  const bool* only_if = nullptr;
  // Where the kernels are captured in a graph: UpdateRule::numbers() of each run, in memory that they reach; null: the
  // numbers are those of the context.
  const kernels::StepNumbers* numbers = nullptr;
};

// The way in which a parameter is treated.
struct Treatment {
  bool decay = true;  // weight decay applies
  bool adapt = true;  // a trust ratio applies
  friend bool operator==(const Treatment&, const Treatment&) = default;
};

// A run of elements of one parameter, contiguous in memory; without one_by_one() also of several neighbouring
// parameters that are treated alike. The four kinds of memory do not overlap.
struct Segment {
  kernels::Reach reach = kernels::Reach::kHost;  // the kernels that reach all of it
  // kFloat or kDouble, of all pointers; on devices also kHalf and kBFloat16, with slots of kFloat.
  torch::ScalarType dtype = torch::kFloat;
  void* parameter = nullptr;
  void* gradient = nullptr;      // already reduced; rules with needs_norms() overwrite it with the direction
  void* const* slots = nullptr;  // as many as slots() names
  float* master = nullptr;       // of a half-precision parameter, which is its rounding; null: it has none
  int64_t size = 0;
  Treatment treatment = {};
  double trust_ratio = 1.0;  // the ratio of the whole parameter, in the second phase
  // The layout of the parameter, for rules with takes_whole().
  std::span<const int64_t> shape = {};
  std::span<const int64_t> strides = {};
};

// A whole parameter among those of flat memory that kernels update at once (UpdateRule::update_layers).
struct LayerPlace {
  int64_t begin = 0;  // in the flat memory
  int64_t size = 0;
  Treatment treatment = {};
  std::vector<int64_t> shape;
  bool is_taken = true;  // by UpdateRule::takes_layer(); false: kernels never get it
};

// The tables of layers that a rule has beside the core's, and all memory that they point to.
struct OwnTables {
  std::shared_ptr<const void> tables = nullptr;
  std::vector<torch::Tensor> memory = {};
};

// Sums of squares over a segment, for trust ratios. Summed over segments in a fixed order by the update.
struct SquaredNorms {
  double parameter = 0.0;
  double direction = 0.0;
};

class UpdateRule {
 public:
  std::any options = {};  // the struct of options that it was made with, for files

  virtual ~UpdateRule() = default;

  virtual const std::string& name() const = 0;
  virtual const std::vector<std::string>& slots() const = 0;  // PyTorch's names where it has them: "exp_avg", ...
  virtual double initial_slot_value(std::size_t /*slot*/) const { return 0.0; }

  // Thread-safe; different segments run in parallel. One vectorised pass. The bits of an element's result depend
  // neither on how a parameter is cut into segments nor on the CPU.
  virtual void update(const Segment& segment, const StepContext& context) const = 0;

  // Returns the numbers of an update by kernels that change from step to step, as StepContext::numbers has them; as
  // many for every step and treatment. Empty: its kernels read none.
  virtual std::vector<double> numbers(Treatment treatment, const StepContext& context) const = 0;

  // Does the same by tensor operations, for devices and dtypes without kernels; all of one parameter, trust ratio
  // included (without one_by_one() also several neighbouring ones). Overwrites the gradient. Half-precision parameters
  // take float32 slots and are updated in float32, their gradients may be float32, and behind the slots may be their
  // master. Never waits for a device.
  virtual void update(torch::Tensor parameter, torch::Tensor gradient, std::span<torch::Tensor> slots,
                      Treatment treatment, const StepContext& context) const = 0;

  // Returns the dimension of a parameter of this rank that a slot's numbers do not have: they lie one after the other
  // at the slot's beginning, in the order of the other dimensions. nullopt: the slot has a number for each element.
  virtual std::optional<int64_t> left_out(std::size_t /*slot*/, int64_t /*rank*/) const { return std::nullopt; }

  // Returns whether the slots hold averages of the parameters, in the last one.
  virtual bool keeps_averages() const { return false; }

  // Returns whether the update of an element depends on all of its parameter: parameters come alone and uncut.
  bool one_by_one() const { return needs_norms() || takes_whole(); }
  // Returns whether segments have to be whole parameters, with their shapes and strides.
  virtual bool takes_whole() const { return false; }

  // Returns whether steps are scaled by norms over the whole parameter. Then the update calls prepare() on all
  // segments first, sums the norms of a parameter, and calls update() with its trust_ratio (which update() leaves out
  // where the segment says no adaptation).
  virtual bool needs_norms() const { return false; }
  virtual SquaredNorms prepare(const Segment& /*segment*/, const StepContext& /*context*/) const { return {}; }
  virtual double trust_ratio(const SquaredNorms& /*norms*/) const { return 1.0; }

  // Returns whether update_layers() takes a parameter of this layout.
  virtual bool takes_layer(std::span<const int64_t> /*shape*/, std::span<const int64_t> /*strides*/) const {
    return needs_norms();
  }
  // Lays out the rule's own tables of layers on a device; update_layers() gets them as Layers::own.
  virtual OwnTables own_tables(const std::vector<LayerPlace>& /*places*/, torch::Device /*device*/) const { return {}; }
  // Does all of it for many whole parameters on a device whose memory kernels reach, where the norms stay. The segment
  // is the memory that has the layers; only the layers have sizes and treatments. `join`, if there is one, is called
  // when the norms of the layers have been made, before they are used. The numbers of the context, if it has some, are
  // those without weight decay and then those with it.
  virtual void update_layers(const Segment& /*segment*/, const kernels::Layers& /*layers*/,
                             const StepContext& /*context*/, const std::function<void()>& /*join*/) const {}
};

}  // namespace cohort
