#include <algorithm>
#include <type_traits>

#include "base/fail.h"
#include "cohort/models/experiment.h"

namespace cohort {

namespace {

// Model Garden's expression for the names of Keras' variables that decay.
constexpr const char* kKernels = ".*(kernel|weight):0$";

}  // namespace

void OptimizerConfig::Rule::describe(ConfigFields& fields) {
  fields.add("type", type, "which rule", {"sgd", "adam", "adamw", "rmsprop", "adagrad", "lamb", "lars"});
  fields.add("global_clipnorm", global_clipnorm, "largest norm of all gradients together; 0: any");
  fields.add("clipvalue", clipvalue, "largest element of a gradient; 0: any");
  fields.add("exclude_from_weight_decay", exclude_from_weight_decay,
             "parts of the names of parameters that do not decay; 1d: biases, and scales and shifts of norms");
  const auto moments = [](auto& rule, ConfigFields& inner) {
    inner.add("beta_1", rule.beta_1, "decay of the mean of the gradients");
    inner.add("beta_2", rule.beta_2, "decay of the mean of their squares");
    inner.add("epsilon", rule.epsilon, "added to the root of the squares");
    inner.add("weight_decay", rule.weight_decay, "of the weights");
  };
  fields.group("sgd", [&](ConfigFields& inner) {
    inner.add("momentum", sgd.momentum, "share of the update before");
    inner.add("dampening", sgd.dampening, "part of the gradient that the momentum leaves out");
    inner.add("nesterov", sgd.nesterov, "Nesterov's momentum");
    inner.add("weight_decay", sgd.weight_decay, "of the weights, by the gradient");
  });
  fields.group("adam", [&](ConfigFields& inner) {
    moments(adam, inner);
    inner.add("amsgrad", adam.amsgrad, "the largest squares so far");
  });
  fields.group("adamw", [&](ConfigFields& inner) {
    moments(adamw, inner);
    inner.add("amsgrad", adamw.amsgrad, "the largest squares so far");
    inner.add("weight_decay_rate", adamw.weight_decay_rate,
              "Model Garden's name of weight_decay; negative: that counts");
    inner.add("include_in_weight_decay", adamw.include_in_weight_decay,
              "what alone decays; empty: all but exclude_from_weight_decay; Model Garden's expression for kernels: not "
              "the tokens and positions of a vision transformer either",
              {"", kKernels});
  });
  fields.group("rmsprop", [&](ConfigFields& inner) {
    inner.add("rho", rmsprop.rho, "decay of the mean of the squares");
    inner.add("momentum", rmsprop.momentum, "share of the update before");
    inner.add("epsilon", rmsprop.epsilon, "added to the root of the squares");
    inner.add("weight_decay", rmsprop.weight_decay, "of the weights, by the gradient");
    inner.add("centered", rmsprop.centered, "the variance in place of the squares");
  });
  fields.group("adagrad", [&](ConfigFields& inner) {
    inner.add("initial_accumulator_value", adagrad.initial_accumulator_value, "of the sum of the squares");
    inner.add("epsilon", adagrad.epsilon, "added to the root of the sum");
    inner.add("lr_decay", adagrad.lr_decay, "of the rate, by the number of updates");
    inner.add("weight_decay", adagrad.weight_decay, "of the weights, by the gradient");
  });
  fields.group("lamb", [&](ConfigFields& inner) { moments(lamb, inner); });
  fields.group("lars", [&](ConfigFields& inner) {
    inner.add("momentum", lars.momentum, "share of the update before");
    inner.add("nesterov", lars.nesterov, "Nesterov's momentum");
    inner.add("trust_coefficient", lars.trust_coefficient, "of the ratio of weight to gradient");
    inner.add("epsilon", lars.epsilon, "added to its divisor");
    inner.add("weight_decay", lars.weight_decay, "of the weights");
  });
}

void OptimizerConfig::Rate::describe(ConfigFields& fields) {
  fields.add("type", type, "which schedule", {"constant", "stepwise", "exponential", "polynomial", "cosine"});
  const std::string whole = "; 0: what the training has after the warm-up";
  fields.group("constant",
               [&](ConfigFields& inner) { inner.add("learning_rate", constant.learning_rate, "of every step"); });
  fields.group("stepwise", [&](ConfigFields& inner) {
    inner.add("boundaries", stepwise.boundaries, "steps at which the rate changes");
    inner.add("values", stepwise.values, "rates, one more than boundaries");
  });
  fields.group("exponential", [&](ConfigFields& inner) {
    inner.add("initial_learning_rate", exponential.initial_learning_rate, "at the beginning");
    inner.add("decay_steps", exponential.decay_steps, "steps of one decay" + whole);
    inner.add("decay_rate", exponential.decay_rate, "factor of one decay");
    inner.add("staircase", exponential.staircase, "at the end of decay_steps only");
  });
  fields.group("polynomial", [&](ConfigFields& inner) {
    inner.add("initial_learning_rate", polynomial.initial_learning_rate, "at the beginning");
    inner.add("decay_steps", polynomial.decay_steps, "steps until the end rate" + whole);
    inner.add("end_learning_rate", polynomial.end_learning_rate, "at the end");
    inner.add("power", polynomial.power, "of the polynomial");
  });
  fields.group("cosine", [&](ConfigFields& inner) {
    inner.add("initial_learning_rate", cosine.initial_learning_rate, "at the beginning");
    inner.add("decay_steps", cosine.decay_steps, "steps until the end rate" + whole);
    inner.add("alpha", cosine.alpha, "the end rate as a part of the initial one");
  });
}

void OptimizerConfig::Warmup::describe(ConfigFields& fields) {
  fields.add("type", type, "how the rate rises at the beginning; empty: it does not", {"", "linear"});
  fields.group("linear", [&](ConfigFields& inner) {
    inner.add("warmup_steps", linear.warmup_steps, "how many");
    inner.add("warmup_learning_rate", linear.warmup_learning_rate, "at step 0");
  });
}

void OptimizerConfig::describe(ConfigFields& fields) {
  fields.nest("optimizer", optimizer);
  fields.nest("learning_rate", learning_rate);
  fields.nest("warmup", warmup);
  fields.group("ema", [&](ConfigFields& inner) {
    inner.add("average_decay", ema.average_decay, "of averages of the weights, which are evaluated; 0: none");
    inner.add("start_step", ema.start_step, "until which the averages are the weights");
    inner.add("dynamic_decay", ema.dynamic_decay, "a smaller decay at first");
    inner.add("trainable_weights_only", ema.trainable_weights_only, "without statistics of batch norm");
  });
  fields.add("scale_by_replicas", scale_by_replicas, "multiply the learning rate with the number of replicas");
  fields.add("accumulate_steps", accumulate_steps, "batches whose gradients make one update");
  fields.restrict("accumulate_steps >= 1");
}

namespace {

// Those rules to whose gradient the decay is added.
bool decays_by_gradient(const std::string& type) {
  return type == "sgd" || type == "adam" || type == "rmsprop" || type == "adagrad";
}

std::vector<std::string> excluded_from_decay(const OptimizerConfig::Rule& rule) {
  std::vector<std::string> excluded = rule.exclude_from_weight_decay;
  if (rule.type == "adamw" && rule.adamw.include_in_weight_decay == kKernels) {
    for (const char* name : {"1d", "class_token", "pos_embedding"}) {
      if (std::find(excluded.begin(), excluded.end(), name) == excluded.end()) excluded.emplace_back(name);
    }
  }
  return excluded;
}

Optimizer build_rule(const OptimizerConfig::Rule& rule, const Schedule& rate, const GradientOptions& gradient,
                     double l2) {
  const auto common = [&](auto options) {
    using Options = decltype(options);
    constexpr bool kTrusts = std::is_same_v<Options, LambOptions> || std::is_same_v<Options, LarsOptions>;
    options.learning_rate = rate;
    options.gradient = gradient;
    // Without a decay there is nothing to exclude from it, but for the trust ratio.
    if (kTrusts || options.weight_decay != 0.0) options.exclude_from_weight_decay = excluded_from_decay(rule);
    return options;
  };
  if (rule.type == "sgd") {
    const double momentum = rule.sgd.momentum;
    return SGD(common(SgdOptions{.momentum = momentum,
                                 .nesterov = rule.sgd.nesterov,
                                 .dampening = momentum == 0.0 ? 0.0 : *rule.sgd.dampening,  // of the momentum
                                 .weight_decay = rule.sgd.weight_decay + l2}));
  }
  if (rule.type == "adam") {
    const auto& own = rule.adam;
    return Adam(common(AdamOptions{.beta_1 = own.beta_1,
                                   .beta_2 = own.beta_2,
                                   .epsilon = own.epsilon,
                                   .amsgrad = own.amsgrad,
                                   .weight_decay = own.weight_decay + l2}));
  }
  if (rule.type == "adamw") {
    const auto& own = rule.adamw;
    return AdamW(
        common(AdamWOptions{.beta_1 = own.beta_1,
                            .beta_2 = own.beta_2,
                            .epsilon = own.epsilon,
                            .amsgrad = own.amsgrad,
                            .weight_decay = own.weight_decay_rate < 0.0 ? own.weight_decay : own.weight_decay_rate}));
  }
  if (rule.type == "rmsprop") {
    const auto& own = rule.rmsprop;
    return RMSprop(common(RmspropOptions{.rho = own.rho,
                                         .momentum = own.momentum,
                                         .epsilon = own.epsilon,
                                         .centered = own.centered,
                                         .weight_decay = own.weight_decay + l2}));
  }
  if (rule.type == "adagrad") {
    const auto& own = rule.adagrad;
    return Adagrad(common(AdagradOptions{.initial_accumulator_value = own.initial_accumulator_value,
                                         .epsilon = own.epsilon,
                                         .lr_decay = own.lr_decay,
                                         .weight_decay = own.weight_decay + l2}));
  }
  if (rule.type == "lamb") {
    const auto& own = rule.lamb;
    return LAMB(common(LambOptions{
        .beta_1 = own.beta_1, .beta_2 = own.beta_2, .epsilon = own.epsilon, .weight_decay = own.weight_decay}));
  }
  const auto& own = rule.lars;
  return LARS(common(LarsOptions{.momentum = own.momentum,
                                 .nesterov = own.nesterov,
                                 .trust_coefficient = own.trust_coefficient,
                                 .epsilon = own.epsilon,
                                 .weight_decay = own.weight_decay}));
}

Schedule build_rate(const OptimizerConfig::Rate& rate, int64_t whole) {
  const auto steps = [&](int64_t given) { return given > 0 ? given : std::max<int64_t>(whole, 1); };
  if (rate.type == "constant") return Schedule(rate.constant.learning_rate);
  if (rate.type == "stepwise") {
    return PiecewiseConstantDecay({.boundaries = rate.stepwise.boundaries, .values = rate.stepwise.values});
  }
  if (rate.type == "exponential") {
    return ExponentialDecay({.initial_learning_rate = rate.exponential.initial_learning_rate,
                             .decay_steps = steps(rate.exponential.decay_steps),
                             .decay_rate = rate.exponential.decay_rate,
                             .staircase = rate.exponential.staircase});
  }
  if (rate.type == "polynomial") {
    return PolynomialDecay({.initial_learning_rate = rate.polynomial.initial_learning_rate,
                            .decay_steps = steps(rate.polynomial.decay_steps),
                            .end_learning_rate = rate.polynomial.end_learning_rate,
                            .power = rate.polynomial.power});
  }
  return CosineDecay({.initial_learning_rate = rate.cosine.initial_learning_rate,
                      .decay_steps = steps(rate.cosine.decay_steps),
                      .alpha = rate.cosine.alpha});
}

}  // namespace

Optimizer OptimizerConfig::build(int64_t train_steps, int replicas, int64_t begin, double l2) const {
  if (l2 > 0.0 && !decays_by_gradient(optimizer.type)) {
    fail<InvalidArgument>("[train] an l2_weight_decay of ", l2, " is added to the gradient, which ", optimizer.type,
                          " does not decay by: say trainer.optimizer_config.optimizer.", optimizer.type,
                          ".weight_decay");
  }
  const int64_t updates = train_steps / accumulate_steps;
  const bool warms_up = warmup.type == "linear";
  const int64_t warmup_steps = warms_up ? *warmup.linear.warmup_steps : 0;
  if (warms_up && warmup_steps < 1) {
    fail<InvalidArgument>("[train] trainer.optimizer_config.warmup.type is linear, but warmup.linear.warmup_steps is ",
                          warmup_steps, ", wanted 1 or more");
  }
  Schedule rate = build_rate(learning_rate, updates - warmup_steps);
  if (warms_up) {
    rate = LinearWarmup(
        {.warmup_steps = warmup_steps, .warmup_learning_rate = warmup.linear.warmup_learning_rate, .after = rate});
  }
  const double factor = scale_by_replicas ? replicas : 1.0;
  const int64_t first = begin / accumulate_steps;
  if (first > 0 || factor != 1.0) {
    rate = rate.is_constant()
               ? Schedule(rate(0) * factor)
               : Schedule(rate.name(), [rate, factor, first](int64_t step) { return factor * rate(step + first); });
  }
  const GradientOptions gradient{.global_clipnorm = optimizer.global_clipnorm,
                                 .clipvalue = optimizer.clipvalue,
                                 .accumulate_steps = accumulate_steps};
  return build_rule(optimizer, rate, gradient, l2);
}

MovingAverageOptions OptimizerConfig::averages() const {
  if (ema.average_decay == 0.0) return {};
  return {.average_decay = ema.average_decay,
          .start_step = ema.start_step,
          .dynamic_decay = ema.dynamic_decay,
          .trainable_weights_only = ema.trainable_weights_only};
}

}  // namespace cohort
