// Makes an optimizer of its configuration, in the form in which Model Garden's OptimizerFactory makes it: sgd, adam,
// rmsprop and adagrad are Keras' legacy optimizers there, those with "experimental" in their names the later ones,
// adamw is Model Garden's own, lamb TensorFlow's addon.
#include <algorithm>
#include <type_traits>

#include "base/fail.h"
#include "cohort/models/experiment.h"

namespace cohort {

namespace {

using Rule = OptimizerConfig::Rule;
using Names = std::vector<std::string>;

// The options that a rule's group has in common with the others, and those that surround the rule.
struct Common {
  Schedule rate;
  GradientOptions gradient;
  const Rule& rule;
  Names excluded;  // the names that weight decay leaves out, by the rule's group
};

Formulation formulation_of(const Rule& rule) {
  if (*rule.formulation == "torch") return Formulation::kTorch;
  const bool later = rule.type->ends_with("_experimental");
  return *rule.formulation == "keras" || later ? Formulation::kKeras : Formulation::kLegacy;
}

void add_names(Names& names, const Names& more) {
  for (const std::string& name : more) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
}

// The clipping that either the rule or its group asks for.
void add_clips(GradientOptions& gradient, const OptimizerConfig::Clips& clips) {
  gradient.clipnorm = std::max<double>(gradient.clipnorm, clips.clipnorm);
  gradient.clipvalue = std::max<double>(gradient.clipvalue, clips.clipvalue);
  const double global = clips.global_clipnorm;
  if (global > 0.0) {
    gradient.global_clipnorm = gradient.global_clipnorm > 0.0 ? std::min(gradient.global_clipnorm, global) : global;
  }
}

// Returns what does not decay. If nothing is said, an L2 decay is of kernels only.
Names excluded(const Common& common) {
  Names names = common.excluded;
  add_names(names, common.rule.exclude_from_weight_decay);
  if (common.gradient.l2 > 0.0 && names.empty()) return {"1d"};
  return names;
}

// Sets the options that all rules have. `decay` is the group's. Without a decay there is nothing to exclude from it,
// but for a trust ratio.
template <typename Options>
Options with_common(const Common& common, const OptimizerConfig::Clips& group, double decay, Options options) {
  options.learning_rate = common.rate;
  options.gradient = common.gradient;
  add_clips(options.gradient, group);
  options.weight_decay = decay;
  constexpr bool kAdapts = requires {
    options.exclude_from_layer_adaptation;
  };
  if (kAdapts || decay != 0.0 || common.gradient.l2 > 0.0) options.exclude_from_weight_decay = excluded(common);
  if constexpr (requires { options.formulation; }) options.formulation = formulation_of(common.rule);
  return options;
}

template <typename Group>
Optimizer build_sgd(const Common& common, const Group& own, double dampening) {
  return SGD(with_common(common, own, own.weight_decay,
                         SgdOptions{.momentum = own.momentum, .nesterov = own.nesterov, .dampening = dampening}));
}

template <typename Options, typename Group>
Options with_moments(const Group& own) {
  Options options;
  options.beta_1 = own.beta_1;
  options.beta_2 = own.beta_2;
  options.epsilon = own.epsilon;
  if constexpr (requires { options.amsgrad; }) options.amsgrad = own.amsgrad;
  return options;
}

Optimizer build_adamw(Common common, const Rule& rule) {
  const auto& own = rule.adamw;
  const double decay = own.weight_decay_rate < 0.0 ? own.weight_decay : own.weight_decay_rate;
  if (decay != 0.0) {
    add_names(common.excluded, own.exclude_from_weight_decay);
    if (!own.include_in_weight_decay->empty()) add_names(common.excluded, {"1d", "class_token", "pos_embedding"});
  }
  OptimizerConfig::Clips clips = own;
  if (own.gradient_clip_norm > 0.0) {
    const double global = clips.global_clipnorm;
    clips.global_clipnorm = global > 0.0 ? std::min<double>(global, own.gradient_clip_norm) : *own.gradient_clip_norm;
  }
  return AdamW(with_common(common, clips, decay, with_moments<AdamWOptions>(own)));
}

Optimizer build_layerwise(Common common, const Rule& rule) {
  if (rule.type == "lamb") {
    const auto& own = rule.lamb;
    add_names(common.excluded, own.exclude_from_weight_decay);
    const double decay = own.weight_decay_rate < 0.0 ? own.weight_decay : own.weight_decay_rate;
    LambOptions options = with_common(common, own, decay, with_moments<LambOptions>(own));
    options.exclude_from_layer_adaptation = own.exclude_from_layer_adaptation;
    return LAMB(options);
  }
  const auto& own = rule.lars;
  add_names(common.excluded, own.exclude_from_weight_decay);
  LarsOptions options = with_common(common, own, own.weight_decay_rate,
                                    LarsOptions{.momentum = own.momentum,
                                                .nesterov = own.nesterov,
                                                .classic_momentum = own.classic_momentum,
                                                .trust_coefficient = own.eeta});
  if (options.formulation == Formulation::kTorch) options.epsilon = own.epsilon;
  options.exclude_from_layer_adaptation = own.exclude_from_layer_adaptation;
  return LARS(options);
}

// The rules that Model Garden does not have; none of them has another formulation.
Optimizer build_of_keras(const Common& common, const Rule& rule) {
  if (rule.type == "adadelta") {
    const auto& own = rule.adadelta;
    return Adadelta(
        with_common(common, own, own.weight_decay, AdadeltaOptions{.rho = own.rho, .epsilon = own.epsilon}));
  }
  if (rule.type == "adamax") {
    const auto& own = rule.adamax;
    return Adamax(with_common(common, own, own.weight_decay, with_moments<AdamaxOptions>(own)));
  }
  if (rule.type == "nadam") {
    const auto& own = rule.nadam;
    return Nadam(with_common(common, own, own.weight_decay, with_moments<NadamOptions>(own)));
  }
  if (rule.type == "ftrl") {
    const auto& own = rule.ftrl;
    return Ftrl(
        with_common(common, own, own.weight_decay,
                    FtrlOptions{.learning_rate_power = own.learning_rate_power,
                                .initial_accumulator_value = own.initial_accumulator_value,
                                .l1_regularization_strength = own.l1_regularization_strength,
                                .l2_regularization_strength = own.l2_regularization_strength,
                                .l2_shrinkage_regularization_strength = own.l2_shrinkage_regularization_strength,
                                .beta = own.beta}));
  }
  if (rule.type == "lion") {
    const auto& own = rule.lion;
    return Lion(with_common(common, own, own.weight_decay, LionOptions{.beta_1 = own.beta_1, .beta_2 = own.beta_2}));
  }
  const auto& own = rule.adafactor;
  return Adafactor(with_common(common, own, own.weight_decay,
                               AdafactorOptions{.beta_2_decay = own.beta_2_decay,
                                                .epsilon_1 = own.epsilon_1,
                                                .epsilon_2 = own.epsilon_2,
                                                .clip_threshold = own.clip_threshold}));
}

Optimizer build_rule(const Common& common, const Rule& rule) {
  if (rule.type == "sgd") return build_sgd(common, rule.sgd, rule.sgd.momentum == 0.0 ? 0.0 : *rule.sgd.dampening);
  if (rule.type == "sgd_experimental") return build_sgd(common, rule.sgd_experimental, 0.0);
  if (rule.type == "adam" || rule.type == "adam_experimental") {
    const auto& own = rule.type == "adam" ? rule.adam : rule.adam_experimental;
    return Adam(with_common(common, own, own.weight_decay, with_moments<AdamOptions>(own)));
  }
  if (rule.type == "adamw") return build_adamw(common, rule);
  if (rule.type == "adamw_experimental") {
    const auto& own = rule.adamw_experimental;
    return AdamW(with_common(common, own, own.weight_decay, with_moments<AdamWOptions>(own)));
  }
  if (rule.type == "rmsprop") {
    const auto& own = rule.rmsprop;
    return RMSprop(with_common(
        common, own, own.weight_decay,
        RmspropOptions{.rho = own.rho, .momentum = own.momentum, .epsilon = own.epsilon, .centered = own.centered}));
  }
  if (rule.type == "adagrad") {
    const auto& own = rule.adagrad;
    return Adagrad(with_common(common, own, own.weight_decay,
                               AdagradOptions{.initial_accumulator_value = own.initial_accumulator_value,
                                              .epsilon = own.epsilon,
                                              .lr_decay = own.lr_decay}));
  }
  if (rule.type == "lamb" || rule.type == "lars") return build_layerwise(common, rule);
  return build_of_keras(common, rule);
}

// The rest of the training after its warm-up, which schedules without a number of steps of their own follow.
struct Rest {
  int64_t begin = 0;
  int64_t steps = 1;
};

// The number of steps that a schedule is given, or the rest's, which it counts from the rest's beginning.
struct StepSpan {
  StepSpan(int64_t given, int64_t own_offset, const Rest& rest)
      : steps(given > 0 ? given : rest.steps), offset(own_offset + (given > 0 ? 0 : rest.begin)) {}
  int64_t steps;
  int64_t offset;
};

// The rates that Model Garden alone has.
Schedule build_power(const OptimizerConfig::Rate& rate, const Rest& rest) {
  if (rate.type == "power") {
    return PowerDecay({.initial_learning_rate = rate.power.initial_learning_rate, .power = rate.power.power});
  }
  if (rate.type == "power_linear") {
    const auto& own = rate.power_linear;
    const StepSpan span(own.total_decay_steps, own.offset, rest);
    return PowerAndLinearDecay({.initial_learning_rate = own.initial_learning_rate,
                                .total_decay_steps = span.steps,
                                .power = own.power,
                                .linear_decay_fraction = own.linear_decay_fraction,
                                .offset = span.offset});
  }
  if (rate.type == "power_with_offset") {
    const auto& own = rate.power_with_offset;
    return PowerDecayWithOffset({.initial_learning_rate = own.initial_learning_rate,
                                 .power = own.power,
                                 .offset = own.offset,
                                 .pre_offset_learning_rate = own.pre_offset_learning_rate});
  }
  const auto& own = rate.step_cosine_with_offset;
  return StepCosineDecay({.boundaries = own.boundaries, .values = own.values, .offset = own.offset});
}

Schedule build_rate(const OptimizerConfig::Rate& rate, const Rest& rest) {
  if (rate.type == "constant") return Schedule(rate.constant.learning_rate);
  if (rate.type == "stepwise") {
    const auto& own = rate.stepwise;
    return WithOffset(PiecewiseConstantDecay({.boundaries = own.boundaries, .values = own.values}), own.offset);
  }
  if (rate.type == "exponential") {
    const auto& own = rate.exponential;
    const StepSpan span(own.decay_steps, own.offset, rest);
    return WithOffset(ExponentialDecay({.initial_learning_rate = own.initial_learning_rate,
                                        .decay_steps = span.steps,
                                        .decay_rate = own.decay_rate,
                                        .staircase = own.staircase}),
                      span.offset);
  }
  if (rate.type == "polynomial") {
    const auto& own = rate.polynomial;
    const StepSpan span(own.decay_steps, own.offset, rest);
    return WithOffset(PolynomialDecay({.initial_learning_rate = own.initial_learning_rate,
                                       .decay_steps = span.steps,
                                       .end_learning_rate = own.end_learning_rate,
                                       .power = own.power,
                                       .cycle = own.cycle}),
                      span.offset);
  }
  if (rate.type != "cosine") return build_power(rate, rest);
  const auto& own = rate.cosine;
  const StepSpan span(own.decay_steps, own.offset, rest);
  return WithOffset(
      CosineDecay({.initial_learning_rate = own.initial_learning_rate, .decay_steps = span.steps, .alpha = own.alpha}),
      span.offset);
}

// Returns the steps of the warm-up; 0 without one.
int64_t steps_of(const OptimizerConfig::Warmup& warmup) {
  if (warmup.type->empty()) return 0;
  const int64_t steps = warmup.type == "linear" ? warmup.linear.warmup_steps : warmup.polynomial.warmup_steps;
  if (steps < 1) {
    fail<InvalidArgument>("[train] trainer.optimizer_config.warmup.type is ", warmup.type, ", but warmup.", warmup.type,
                          ".warmup_steps is ", steps, ", wanted 1 or more");
  }
  return steps;
}

Schedule warmed_up(const OptimizerConfig::Warmup& warmup, int64_t steps, const Schedule& rate) {
  if (steps == 0) return rate;
  if (warmup.type == "polynomial") {
    return PolynomialWarmup({.warmup_steps = steps, .power = warmup.polynomial.power, .after = rate});
  }
  return LinearWarmup({.warmup_steps = steps,
                       .warmup_learning_rate = warmup.linear.warmup_learning_rate,
                       .after = rate,
                       .counts_from_start = true});
}

}  // namespace

Optimizer OptimizerConfig::build(int64_t train_steps, int replicas, int64_t begin, double l2) const {
  const int64_t warm = steps_of(warmup);
  const Rest rest{.begin = warm, .steps = std::max<int64_t>(train_steps - warm, 1)};
  Schedule rate = warmed_up(warmup, warm, build_rate(learning_rate, rest));
  const double factor = scale_by_replicas ? replicas : 1.0;
  const double decay = optimizer.type == "sgd" ? *optimizer.sgd.decay : 0.0;
  if (rate.is_constant() && decay == 0.0) {
    rate = rate(0) * factor;
  } else if (begin > 0 || factor != 1.0 || decay != 0.0) {
    rate = Schedule(rate.name(), [rate, factor, decay, begin](int64_t step) {
      const int64_t at = step + begin;
      return factor * rate(at) / (1.0 + decay * static_cast<double>(at));
    });
  }
  Common common{
      .rate = rate, .gradient = {.gradient_accumulation_steps = accumulate_steps, .l2 = l2}, .rule = optimizer};
  add_clips(common.gradient, optimizer);
  return build_rule(common, optimizer);
}

}  // namespace cohort
