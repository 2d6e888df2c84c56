// The declarations that the rules of this wing share.
#pragma once

#include <ATen/Functions.h>

#include <functional>
#include <string>
#include <vector>

#include "optimizer/rules/rule.h"
#include "wings/optimizers/optimizer/kernels/more_table.h"

namespace cohort {

// Calls visit with this wing's kernels for the segment's dtype.
template <typename Visit>
void with_more_kernels(const Segment& segment, const Visit& visit) {
  if (segment.dtype == torch::kFloat) return visit(kernels::more_tables(segment.reach).f32);
  if (segment.dtype == torch::kDouble) return visit(kernels::more_tables(segment.reach).f64);
  if (segment.dtype == torch::kHalf) return visit(kernels::more_half_tables(segment.reach).f16);
  if (segment.dtype == torch::kBFloat16) return visit(kernels::more_half_tables(segment.reach).bf16);
  refuse_dtype(segment.dtype, "Float, Double, Half or BFloat16");
}

// Calls visit with the passes for the segment's dtype, in the host's memory.
template <typename Visit>
void with_passes(const Segment& segment, const Visit& visit) {
  if (segment.dtype == torch::kFloat) return visit(kernels::pass_tables().f32);
  if (segment.dtype == torch::kDouble) return visit(kernels::pass_tables().f64);
  refuse_dtype(segment.dtype, "Float or Double");
}

// A rule over kernels of this wing:
//   template <typename P, typename T>
//   void apply(const kernels::MoreTable<P, T>&, const Segment&, const StepContext&) const;
template <typename Derived>
class MoreRule : public Rule<Derived> {
 public:
  using Rule<Derived>::Rule;

  template <typename Visit>
  static void with_tables(const Segment& segment, const Visit& visit) {
    with_more_kernels(segment, visit);
  }
};

// A rule that a CPU updates in several passes:
//   template <typename T> void apply(const kernels::PassTable<T>&, const Segment&, const StepContext&) const;
// It calls begin() before it where it needs norms.
template <typename Derived>
class PassRule : public Rule<Derived> {
 public:
  using Rule<Derived>::Rule;

  template <typename Visit>
  static void with_tables(const Segment& segment, const Visit& visit) {
    with_passes(segment, visit);
  }
  template <typename T>
  void run(const kernels::PassTable<T>& table, const Segment& segment, const StepContext& context) const {
    if (!this->needs_norms()) begin(table, segment, context);
    static_cast<const Derived&>(*this).apply(table, segment, context);
    finish(table, segment, context);
  }

 protected:
  // Returns the context of layers with weight decay, whose numbers lie behind those of layers without it.
  template <typename Args>
  static StepContext decaying(StepContext context) {
    if (context.numbers == nullptr) return context;
    const auto* of_rule = reinterpret_cast<const Args*>(context.numbers + 1);
    context.numbers = reinterpret_cast<const kernels::StepNumbers*>(of_rule + 1);
    return context;
  }

  // Does what precedes the rule's own arithmetic in passes. Rules with needs_norms() call it in prepare(), because
  // their norms are of the decayed parameter.
  template <typename T>
  void begin(const kernels::PassTable<T>& table, const Segment& segment, const StepContext& context) const {
    // The averages have moved at the calls that only added up gradients, too.
    if (this->ema().use_ema && context.calls > 1) {
      table.average(average_of<T>(segment), parameter_of<T>(segment), segment.size,
                    ema_momentum(this->ema(), context, context.calls - 1));
    }
    if (this->shrinks(segment.treatment)) table.scale(parameter_of<T>(segment), segment.size, this->shrink(context));
  }

 private:
  template <typename T>
  T* average_of(const Segment& segment) const {
    return slot_of<T>(segment, this->slots().size() - 1);
  }

  template <typename T>
  void finish(const kernels::PassTable<T>& table, const Segment& segment, const StepContext& context) const {
    if (!this->ema().use_ema) return;
    T* average = average_of<T>(segment);
    table.average(average, parameter_of<T>(segment), segment.size, ema_momentum(this->ema(), context, 1));
    if (overwrites(this->ema(), context)) table.copy(parameter_of<T>(segment), average, segment.size);
  }
};

// Returns what layer adaptation leaves out: in the papers' formulation also what does not decay; in the legacy one this
// alone, if nothing else is said.
std::vector<std::string> unadapted(std::vector<std::string> adaptation, const std::vector<std::string>& decay,
                                   Formulation formulation);

// Returns the memory of layers as kernels take it; the slots are the rule's own.
template <typename P, typename T>
kernels::LayerMemory<P, T> layer_memory(const Segment& segment, std::size_t slots) {
  kernels::LayerMemory<P, T> at{.p = parameter_of<P>(segment), .g = gradient_of<P>(segment)};
  for (std::size_t s = 0; s < slots; ++s) at.slots[s] = slot_of<T>(segment, s);
  return at;
}

// LAMB's and LARS' prepare(): calls visit(first element, elements) for one block after the other, which writes the
// directions over the gradients there, and sums the squares while they are in the first-level cache.
SquaredNorms prepare_in_blocks(const Segment& segment, const std::function<void(int64_t at, int64_t n)>& visit);

// Returns the L2 norm of a tensor as a scalar on its device, in float64.
torch::Tensor norm_of(const torch::Tensor& tensor);
// Returns that of a parameter, or of what has its shape, of which other replicas may have parts.
torch::Tensor norm_of(const torch::Tensor& part, const StepContext& context);
// Returns `ratio` where both norms are above zero (or NaN), else 1; without a wait for the device.
torch::Tensor trust_or_one(const torch::Tensor& ratio, const torch::Tensor& parameter_norm,
                           const torch::Tensor& direction_norm);

}  // namespace cohort
