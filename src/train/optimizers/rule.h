// What the update rules share.
#pragma once

#include <ATen/Functions.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "train/kernels/update_table.h"
#include "train/update_rule.h"

namespace cohort {

// How a rule reads its gradient.
inline kernels::GradientArgs gradient_args(const StepContext& context, double l2_decay) {
  return {.scale = context.grad_scale, .clip = context.clipvalue, .decay = l2_decay};
}

// The tensor form of the same.
inline torch::Tensor read_gradient(const torch::Tensor& parameter, const torch::Tensor& gradient, const StepContext& context,
                                   double l2_decay) {
  torch::Tensor g = context.grad_scale == 1.0 ? gradient : gradient * context.grad_scale;
  if (context.clipvalue > 0.0) g = g.clamp(-context.clipvalue, context.clipvalue);
  return l2_decay == 0.0 ? g : g.add(parameter, l2_decay);
}

// Implements UpdateRule over Derived's two templates:
//   template <typename T> void apply(const kernels::UpdateTable<T>&, const Segment&, T* const* slots, const StepContext&) const;
//   void apply(torch::Tensor& p, const torch::Tensor& g, std::span<torch::Tensor> slots, bool decay, const StepContext&) const;
template <typename Derived>
class Rule : public UpdateRule {
 public:
  Rule(std::string name, std::vector<std::string> slots) : name_(std::move(name)), slots_(std::move(slots)) {}

  const std::string& name() const override { return name_; }
  const std::vector<std::string>& slots() const override { return slots_; }

  void update(const Segment& segment, const StepContext& context) const override {
    if (segment.dtype == torch::kFloat) {
      derived().template apply<float>(kernels::update_tables().f32, segment, reinterpret_cast<float* const*>(segment.slots), context);
    } else {
      derived().template apply<double>(kernels::update_tables().f64, segment, reinterpret_cast<double* const*>(segment.slots),
                                       context);
    }
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

template <typename T>
T* typed(void* pointer) {
  return static_cast<T*>(pointer);
}

// Checks of options; `what` opens the message.
inline void require(bool right, const char* what, const char* field, double value, const char* wanted) {
  if (!right) fail<InvalidArgument>("[optimizer] ", what, ": ", field, " is ", value, ", wanted ", wanted);
}
inline void require_not_negative(const char* what, const char* field, double value) {
  require(value >= 0.0, what, field, value, "0 or more");
}
inline void require_fraction(const char* what, const char* field, double value) {
  require(value >= 0.0 && value < 1.0, what, field, value, "0 or more and below 1");
}

// sqrt(parameter) / sqrt(direction) of the sums of squares, 1 where either is zero.
inline double norm_ratio(const SquaredNorms& norms) {
  if (norms.parameter <= 0.0 || norms.direction <= 0.0) return 1.0;
  return std::sqrt(norms.parameter / norms.direction);
}

// The same for whole tensors.
inline SquaredNorms norms_of(const torch::Tensor& parameter, const torch::Tensor& direction) {
  const double p = parameter.norm(2, torch::kDouble).item<double>();
  const double d = direction.norm(2, torch::kDouble).item<double>();
  return {.parameter = p * p, .direction = d * d};
}

}  // namespace cohort
