// What the update rules share.
#pragma once

#include <ATen/Functions.h>

#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "optimizer/kernels/update_table.h"
#include "optimizer/update_rule.h"

namespace cohort {

// How a rule reads its gradient.
inline kernels::GradientArgs gradient_args(const StepContext& context, double l2_decay) {
  return {.scale = context.grad_scale, .clip = context.clipvalue, .decay = l2_decay};
}

// The tensor form of the same; overwrites the gradient.
torch::Tensor read_gradient(const torch::Tensor& parameter, torch::Tensor gradient, const StepContext& context,
                            double l2_decay);

// What makes up for moving averages that begin at zero.
struct BiasCorrections {
  double first = 1.0;        // 1 - beta_1^step
  double root_second = 1.0;  // sqrt(1 - beta_2^step)
};
// A thread that asks for the same again, as it does for all segments of a step, gets what it got before.
BiasCorrections bias_corrections(double beta_1, double beta_2, int64_t step);

// Calls visit with the kernels for the segment's dtype.
template <typename Visit>
void with_kernels(const Segment& segment, const Visit& visit) {
  if (segment.dtype == torch::kFloat) {
    visit(kernels::update_tables().f32);
  } else if (segment.dtype == torch::kDouble) {
    visit(kernels::update_tables().f64);
  } else {
    fail<InvalidArgument>("[optimizer] a segment of ", c10::toString(segment.dtype),
                          " came, Float or Double was wanted");
  }
}

template <typename T>
T* parameter_of(const Segment& segment) {
  return static_cast<T*>(segment.parameter);
}
template <typename T>
T* gradient_of(const Segment& segment) {
  return static_cast<T*>(segment.gradient);
}
template <typename T>
T* slot_of(const Segment& segment, std::size_t slot) {
  return static_cast<T*>(segment.slots[slot]);
}

// Implements UpdateRule over Derived's two forms of the arithmetic:
//   template <typename T> void apply(const kernels::UpdateTable<T>&, const Segment&, const StepContext&) const;
//   void apply(torch::Tensor& p, const torch::Tensor& g, std::span<torch::Tensor> slots, bool decay, const
//   StepContext&) const;
template <typename Derived>
class Rule : public UpdateRule {
 public:
  Rule(std::string name, std::vector<std::string> slots) : name_(std::move(name)), slots_(std::move(slots)) {}

  const std::string& name() const override { return name_; }
  const std::vector<std::string>& slots() const override { return slots_; }

  void update(const Segment& segment, const StepContext& context) const override {
    with_kernels(segment, [&](const auto& table) { derived().apply(table, segment, context); });
  }

  void update(torch::Tensor parameter, torch::Tensor gradient, std::span<torch::Tensor> slots, bool decay,
              const StepContext& context) const override {
    const torch::NoGradGuard no_grad;
    const bool half = parameter.scalar_type() == torch::kHalf || parameter.scalar_type() == torch::kBFloat16;
    if (!half) {
      derived().apply(parameter, gradient, slots, decay, context);
      return;
    }
    torch::Tensor wide = parameter.to(torch::kFloat);
    derived().apply(wide, gradient.to(torch::kFloat), slots, decay, context);
    parameter.copy_(wide);
  }

 private:
  const Derived& derived() const { return static_cast<const Derived&>(*this); }

  std::string name_;
  std::vector<std::string> slots_;
};

// Options that are out of range; `rule` opens the message.
void require_not_negative(const char* rule, const char* field, double value);
// 0 or more and below 1.
void require_fraction(const char* rule, const char* field, double value);

// LAMB's and LARS' prepare(): calls visit(first element, elements) for one block after the other, which writes the
// directions over the gradients there, and sums the squares while they are in the first-level cache.
SquaredNorms prepare_in_blocks(const Segment& segment, const std::function<void(int64_t at, int64_t n)>& visit);

// The L2 norm of a tensor as a scalar on its device, in float64.
torch::Tensor norm_of(const torch::Tensor& tensor);
// `ratio` where both norms are above zero (or NaN), else 1; without a wait for the device.
torch::Tensor trust_or_one(const torch::Tensor& ratio, const torch::Tensor& parameter_norm,
                           const torch::Tensor& direction_norm);

}  // namespace cohort
