// The declarations that the update rules share.
#pragma once

#include <ATen/Functions.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "cohort/optimizer.h"
#include "optimizer/kernels/update_table.h"
#include "optimizer/update_rule.h"

namespace cohort {

// Returns the gradient as a rule reads it: scaled, clipped, with L2 decay. Overwrites it.
torch::Tensor read_gradient(const torch::Tensor& parameter, torch::Tensor gradient, const StepContext& context,
                            double l2_decay);

// The factors that make up for moving averages that begin at zero.
struct BiasCorrections {
  double first = 1.0;        // 1 - beta_1^step
  double root_second = 1.0;  // sqrt(1 - beta_2^step)
};
// Returns the factors. A thread that asks for the same again, as it does for all segments of a step, gets what it got
// before.
BiasCorrections bias_corrections(double beta_1, double beta_2, int64_t step);

[[noreturn]] void refuse_dtype(torch::ScalarType dtype, const char* wanted);

// Calls visit with the kernels for the segment's dtype.
template <typename Visit>
void with_kernels(const Segment& segment, const Visit& visit) {
  if (segment.dtype == torch::kFloat) return visit(kernels::update_tables(segment.reach).f32);
  if (segment.dtype == torch::kDouble) return visit(kernels::update_tables(segment.reach).f64);
  if (segment.dtype == torch::kHalf) return visit(kernels::half_tables(segment.reach).f16);
  if (segment.dtype == torch::kBFloat16) return visit(kernels::half_tables(segment.reach).bf16);
  refuse_dtype(segment.dtype, "Float, Double, Half or BFloat16");
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

// Refuses options that are out of range; `rule` opens the message.
void require_not_negative(const char* rule, const char* field, double value);
// Refuses what is not 0 or more and below 1.
void require_fraction(const char* rule, const char* field, double value);
void require_ema(const char* rule, const EmaOptions& ema);
// Refuses what only LibTorch's formulation has.
void require_torch(const char* rule, const char* field, bool unset, Formulation formulation);

// The things that every rule does beside its own arithmetic.
struct Surroundings {
  double l2 = 0.0;            // LibTorch's weight_decay: added to the gradient
  double weight_decay = 0.0;  // decoupled, where the rule's own kernel does not do it
  EmaOptions ema = {};
};

// Returns where the weight decay of the options belongs: into the gradient in LibTorch's formulation, else decoupled.
Surroundings surroundings(double weight_decay, const EmaOptions& ema, Formulation formulation);

// Returns the share of the average before that `moves` moves leave.
double ema_momentum(const EmaOptions& ema, const StepContext& context, int64_t moves);
// Returns whether the averages replace the parameters after this update.
bool overwrites(const EmaOptions& ema, const StepContext& context);
void move_average(torch::Tensor& average, const torch::Tensor& parameter, double momentum);

// Implements UpdateRule over Derived's two forms of the arithmetic:
//   template <typename P, typename T>
//   void apply(const kernels::UpdateTable<P, T>&, const Segment&, const StepContext&) const;
//   <Rule>Args args(Treatment, const StepContext&) const;  // what those kernels get; without it they read no numbers
//   void apply(torch::Tensor& p, const torch::Tensor& g, std::span<torch::Tensor> slots, Treatment, const StepContext&)
//   const;
// Decoupled decay comes before them and the averages of the parameters come after them. A rule with kernels of its own
// hides with_tables(), and one that surrounds them otherwise hides run().
template <typename Derived>
class Rule : public UpdateRule {
 public:
  Rule(std::string name, std::vector<std::string> slots, const Surroundings& around)
      : name_(std::move(name)), slots_(std::move(slots)), around_(around) {
    if (around_.ema.use_ema) slots_.emplace_back("average");
  }

  const std::string& name() const override { return name_; }
  const std::vector<std::string>& slots() const override { return slots_; }
  bool keeps_averages() const override { return around_.ema.use_ema; }

  void update(const Segment& segment, const StepContext& context) const override {
    Derived::with_tables(segment, [&](const auto& table) { derived().run(table, segment, context); });
  }

  // Calls visit with the kernels of the rule for the segment's dtype.
  template <typename Visit>
  static void with_tables(const Segment& segment, const Visit& visit) {
    with_kernels(segment, visit);
  }
  template <typename Table>
  void run(const Table& table, const Segment& segment, const StepContext& context) const {
    derived().apply(table, segment, context);
  }

  std::vector<double> numbers(Treatment treatment, const StepContext& context) const override {
    std::vector<double> all;
    if constexpr (requires { derived().args(treatment, context); }) {
      const bool averages = around_.ema.use_ema;
      append(all, kernels::StepNumbers{.scale = context.grad_scale,
                                       .shrink = shrinks(treatment) ? shrink(context) : 1.0,
                                       .keep = averages ? ema_momentum(around_.ema, context, 1) : 0.0,
                                       .overwrites = averages && overwrites(around_.ema, context) ? 1.0 : 0.0});
      append(all, derived().args(treatment, context));
    }
    return all;
  }

  void update(torch::Tensor parameter, torch::Tensor gradient, std::span<torch::Tensor> slots, Treatment treatment,
              const StepContext& context) const override {
    const torch::NoGradGuard no_grad;
    const bool half = parameter.scalar_type() == torch::kHalf || parameter.scalar_type() == torch::kBFloat16;
    torch::Tensor wide = half ? parameter.to(torch::kFloat) : parameter;
    if (half && slots.size() > slots_.size()) {
      const torch::Tensor& master = slots.back();
      // What something else has written to the parameter goes on.
      wide = master.copy_(at::where(master.to(parameter.scalar_type()).eq(parameter), master, wide));
      slots = slots.first(slots_.size());
    }
    begin(wide, slots, treatment, context);
    derived().apply(wide, half ? gradient.to(torch::kFloat) : gradient, slots, treatment, context);
    finish(wide, slots, context);
    if (half) parameter.copy_(wide);
  }

 protected:
  // Returns what all rules do with a segment beside their own arithmetic.
  kernels::CommonArgs reading(const Segment& segment, const StepContext& context) const {
    return common(segment, segment.treatment, context);
  }
  // Returns the same for a layer that is treated so.
  kernels::CommonArgs common(const Segment& segment, Treatment treatment, const StepContext& context) const {
    const bool averages = around_.ema.use_ema;
    const bool may_overwrite = context.numbers != nullptr && around_.ema.ema_overwrite_frequency > 0;
    return {.scale = context.grad_scale,
            .clip = context.clipvalue,
            .decay = treatment.decay ? around_.l2 + context.l2 : 0.0,
            .factor = context.factor,
            .only_if = context.only_if,
            .shrink = shrinks(treatment) ? shrink(context) : 1.0,
            .average = averages ? segment.slots[slots_.size() - 1] : nullptr,
            .master = segment.master,
            // The averages have moved at the calls that only added up gradients, too.
            .keep_before = averages && context.calls > 1 ? ema_momentum(around_.ema, context, context.calls - 1) : 1.0,
            .keep = averages ? ema_momentum(around_.ema, context, 1) : 0.0,
            .overwrite = averages && (may_overwrite || overwrites(around_.ema, context)),
            .numbers = context.numbers};
  }

  // The tensor form of reading a gradient; overwrites it.
  torch::Tensor read(const torch::Tensor& parameter, const torch::Tensor& gradient, Treatment treatment,
                     const StepContext& context) const {
    return read_gradient(parameter, gradient, context, treatment.decay ? around_.l2 + context.l2 : 0.0);
  }

  const EmaOptions& ema() const { return around_.ema; }
  bool shrinks(Treatment treatment) const { return treatment.decay && around_.weight_decay != 0.0; }
  double shrink(const StepContext& context) const { return 1.0 - context.learning_rate * around_.weight_decay; }

 private:
  const Derived& derived() const { return static_cast<const Derived&>(*this); }
  // Appends a struct of numbers as it lies in memory.
  template <typename Numbers>
  static void append(std::vector<double>& all, const Numbers& numbers) {
    static_assert(sizeof(Numbers) % sizeof(double) == 0);
    const std::size_t begin = all.size();
    all.resize(begin + sizeof(Numbers) / sizeof(double));
    std::memcpy(all.data() + begin, &numbers, sizeof(Numbers));
  }

  void begin(torch::Tensor& p, std::span<torch::Tensor> slots, Treatment treatment, const StepContext& context) const {
    if (around_.ema.use_ema && context.calls > 1) {
      move_average(slots.back(), p, ema_momentum(around_.ema, context, context.calls - 1));
    }
    if (shrinks(treatment)) p.mul_(shrink(context));
  }

  void finish(torch::Tensor& p, std::span<torch::Tensor> slots, const StepContext& context) const {
    if (!around_.ema.use_ema) return;
    move_average(slots.back(), p, ema_momentum(around_.ema, context, 1));
    if (overwrites(around_.ema, context)) p.copy_(slots.back());
  }

  std::string name_;
  std::vector<std::string> slots_;
  Surroundings around_;
};

// Makes an Optimizer of a rule and the options that all rules have.
template <typename MadeRule, typename Options>
Optimizer make_optimizer(const std::shared_ptr<MadeRule>& rule, const Options& options,
                         std::vector<std::string> unadapted = {}) {
  require_not_negative(rule->name().c_str(), "weight_decay", options.weight_decay);
  require_ema(rule->name().c_str(), options.ema);
  rule->options = options;
  return {rule,
          options.learning_rate,
          options.gradient,
          options.exclude_from_weight_decay,
          std::move(unadapted),
          options.master_weights};
}

}  // namespace cohort
