// The keys of an optimizer's configuration. build_optimizer.cpp makes the optimizer.
#include "cohort/models/experiment.h"

namespace cohort {

namespace {

// Model Garden's expression for the names of Keras' variables that decay.
constexpr const char* kKernels = ".*(kernel|weight):0$";

constexpr const char* kDecoupled = "decoupled decay; formulation torch: by the gradient";
constexpr const char* kInitial = "at the beginning";
constexpr const char* kOffset = "step that counts as 0";
constexpr const char* kExcluded = "parts of the names of parameters that do not decay; 1d: biases, scales and shifts";

}  // namespace

void OptimizerConfig::Clips::describe(ConfigFields& fields) {
  fields.add("clipnorm", clipnorm, "largest norm of the gradient of each parameter; 0: any");
  fields.add("global_clipnorm", global_clipnorm, "largest norm of all gradients together; 0: any");
  fields.add("clipvalue", clipvalue, "largest element of a gradient; 0: any");
}

void OptimizerConfig::Moments::describe(ConfigFields& fields) {
  Clips::describe(fields);
  fields.add("beta_1", beta_1, "decay of the mean of the gradients");
  fields.add("beta_2", beta_2, "decay of the mean of their squares");
  fields.add("epsilon", epsilon, "added to the root of the squares");
  fields.add("weight_decay", weight_decay, kDecoupled);
}

void OptimizerConfig::Rule::describe(ConfigFields& fields) {
  fields.add("type", type, "which rule",
             {"sgd", "sgd_experimental", "adam", "adam_experimental", "adamw", "adamw_experimental", "rmsprop",
              "adagrad", "adadelta", "adamax", "nadam", "ftrl", "lion", "adafactor", "lamb", "lars"});
  fields.add("formulation", formulation,
             "model_garden: sgd, adam, rmsprop, adagrad and lamb in the form of Keras' legacy optimizers; keras: of "
             "Keras 3; torch: of LibTorch",
             {"model_garden", "torch", "keras"});
  Clips::describe(fields);
  fields.add("exclude_from_weight_decay", exclude_from_weight_decay,
             "parts of the names of parameters that do not decay; 1d: biases, and scales and shifts of norms; empty: "
             "all decay, but l2_weight_decay does not count 1d");
  fields.group("sgd", [&](ConfigFields& inner) {
    sgd.describe(inner);
    inner.add("momentum", sgd.momentum, "share of the update before");
    inner.add("decay", sgd.decay, "the rate is divided by 1 + decay * step");
    inner.add("dampening", sgd.dampening, "formulation torch: part of the gradient that the momentum leaves out");
    inner.add("nesterov", sgd.nesterov, "Nesterov's momentum");
    inner.add("weight_decay", sgd.weight_decay, kDecoupled);
  });
  fields.group("sgd_experimental", [&](ConfigFields& inner) {
    sgd_experimental.describe(inner);
    inner.add("momentum", sgd_experimental.momentum, "share of the update before");
    inner.add("nesterov", sgd_experimental.nesterov, "Nesterov's momentum");
    inner.add("weight_decay", sgd_experimental.weight_decay, kDecoupled);
  });
  const auto adam_like = [](auto& rule, ConfigFields& inner) {
    rule.describe(inner);
    inner.add("amsgrad", rule.amsgrad, "the largest squares so far");
  };
  fields.group("adam", [&](ConfigFields& inner) { adam_like(adam, inner); });
  fields.group("adam_experimental", [&](ConfigFields& inner) { adam_like(adam_experimental, inner); });
  fields.group("adamw", [&](ConfigFields& inner) {
    adam_like(adamw, inner);
    inner.add("weight_decay_rate", adamw.weight_decay_rate,
              "Model Garden's name of weight_decay; negative: that counts");
    inner.add("gradient_clip_norm", adamw.gradient_clip_norm, "Model Garden's name of global_clipnorm; 0: any");
    inner.add("include_in_weight_decay", adamw.include_in_weight_decay,
              "what alone decays; empty: all but what is excluded; Model Garden's expression for kernels: not the "
              "tokens and positions of a vision transformer either",
              {"", kKernels});
    inner.add("exclude_from_weight_decay", adamw.exclude_from_weight_decay, kExcluded);
  });
  fields.group("adamw_experimental", [&](ConfigFields& inner) { adam_like(adamw_experimental, inner); });
  describe_newer(fields);
  describe_layerwise(fields);
}

void OptimizerConfig::Rule::describe_newer(ConfigFields& fields) {
  fields.group("rmsprop", [&](ConfigFields& inner) {
    rmsprop.describe(inner);
    inner.add("rho", rmsprop.rho, "decay of the mean of the squares");
    inner.add("momentum", rmsprop.momentum, "share of the update before");
    inner.add("epsilon", rmsprop.epsilon, "added to the squares or their root");
    inner.add("weight_decay", rmsprop.weight_decay, kDecoupled);
    inner.add("centered", rmsprop.centered, "the variance in place of the squares");
  });
  fields.group("adagrad", [&](ConfigFields& inner) {
    adagrad.describe(inner);
    inner.add("initial_accumulator_value", adagrad.initial_accumulator_value, "of the sum of the squares");
    inner.add("epsilon", adagrad.epsilon, "added to the sum or its root");
    inner.add("lr_decay", adagrad.lr_decay, "formulation torch: of the rate, by the number of updates");
    inner.add("weight_decay", adagrad.weight_decay, kDecoupled);
  });
  fields.group("adadelta", [&](ConfigFields& inner) {
    adadelta.describe(inner);
    inner.add("rho", adadelta.rho, "decay of the means of the squares");
    inner.add("epsilon", adadelta.epsilon, "added to the squares");
    inner.add("weight_decay", adadelta.weight_decay, kDecoupled);
  });
  fields.nest("adamax", adamax);
  fields.nest("nadam", nadam);
  fields.group("ftrl", [&](ConfigFields& inner) {
    ftrl.describe(inner);
    inner.add("learning_rate_power", ftrl.learning_rate_power, "of the sum of the squares, 0 or less");
    inner.add("initial_accumulator_value", ftrl.initial_accumulator_value, "of the sum of the squares");
    inner.add("l1_regularization_strength", ftrl.l1_regularization_strength, "makes small parameters 0");
    inner.add("l2_regularization_strength", ftrl.l2_regularization_strength, "draws parameters to 0");
    inner.add("l2_shrinkage_regularization_strength", ftrl.l2_shrinkage_regularization_strength,
              "the same, where there are gradients");
    inner.add("beta", ftrl.beta, "smoothes the rate at the beginning");
    inner.add("weight_decay", ftrl.weight_decay, kDecoupled);
  });
  fields.group("lion", [&](ConfigFields& inner) {
    lion.describe(inner);
    inner.add("beta_1", lion.beta_1, "share of the mean in the step");
    inner.add("beta_2", lion.beta_2, "decay of the mean of the gradients");
    inner.add("weight_decay", lion.weight_decay, kDecoupled);
  });
  fields.group("adafactor", [&](ConfigFields& inner) {
    adafactor.describe(inner);
    inner.add("beta_2_decay", adafactor.beta_2_decay, "the squares are averaged with 1 - t ^ beta_2_decay");
    inner.add("epsilon_1", adafactor.epsilon_1, "added to the squares");
    inner.add("epsilon_2", adafactor.epsilon_2, "the least scale of a step");
    inner.add("clip_threshold", adafactor.clip_threshold, "the largest root mean square of a step");
    inner.add("weight_decay", adafactor.weight_decay, kDecoupled);
  });
}

void OptimizerConfig::Rule::describe_layerwise(ConfigFields& fields) {
  const auto excluded = [](auto& rule, ConfigFields& inner) {
    inner.add("exclude_from_weight_decay", rule.exclude_from_weight_decay, kExcluded);
    inner.add("exclude_from_layer_adaptation", rule.exclude_from_layer_adaptation,
              "parts of the names of parameters without a trust ratio; empty: those that do not decay");
  };
  fields.group("lamb", [&](ConfigFields& inner) {
    lamb.describe(inner);
    inner.add("weight_decay_rate", lamb.weight_decay_rate,
              "Model Garden's name of weight_decay; negative: that counts");
    excluded(lamb, inner);
  });
  fields.group("lars", [&](ConfigFields& inner) {
    lars.describe(inner);
    inner.add("momentum", lars.momentum, "share of the update before");
    inner.add("nesterov", lars.nesterov, "Nesterov's momentum");
    inner.add("classic_momentum", lars.classic_momentum, "the rate is part of the momentum");
    inner.add("eeta", lars.eeta, "of the ratio of weight to gradient");
    inner.add("epsilon", lars.epsilon, "formulation torch: added to its divisor");
    inner.add("weight_decay_rate", lars.weight_decay_rate, "of the weights, by the gradient");
    excluded(lars, inner);
  });
}

void OptimizerConfig::Rate::describe(ConfigFields& fields) {
  fields.add("type", type, "which schedule",
             {"constant", "stepwise", "exponential", "polynomial", "cosine", "power", "power_linear",
              "power_with_offset", "step_cosine_with_offset"});
  const std::string whole = "; 0: what the training has after the warm-up, counted from its end";
  const auto initial = [](auto& rate, ConfigFields& inner) {
    inner.add("initial_learning_rate", rate.initial_learning_rate, kInitial);
  };
  const auto offset = [](auto& rate, ConfigFields& inner) { inner.add("offset", rate.offset, kOffset); };
  fields.group("constant",
               [&](ConfigFields& inner) { inner.add("learning_rate", constant.learning_rate, "of every step"); });
  fields.group("stepwise", [&](ConfigFields& inner) {
    inner.add("boundaries", stepwise.boundaries, "steps at which the rate changes");
    inner.add("values", stepwise.values, "rates, one more than boundaries");
    offset(stepwise, inner);
  });
  fields.group("exponential", [&](ConfigFields& inner) {
    initial(exponential, inner);
    inner.add("decay_steps", exponential.decay_steps, "steps of one decay" + whole);
    inner.add("decay_rate", exponential.decay_rate, "factor of one decay");
    inner.add("staircase", exponential.staircase, "at the end of decay_steps only");
    offset(exponential, inner);
  });
  fields.group("polynomial", [&](ConfigFields& inner) {
    initial(polynomial, inner);
    inner.add("decay_steps", polynomial.decay_steps, "steps until the end rate" + whole);
    inner.add("end_learning_rate", polynomial.end_learning_rate, "at the end");
    inner.add("power", polynomial.power, "of the polynomial");
    inner.add("cycle", polynomial.cycle, "begin again after decay_steps, and decay for twice, three times as long");
    offset(polynomial, inner);
  });
  fields.group("cosine", [&](ConfigFields& inner) {
    initial(cosine, inner);
    inner.add("decay_steps", cosine.decay_steps, "steps until the end rate" + whole);
    inner.add("alpha", cosine.alpha, "the end rate as a part of the initial one");
    offset(cosine, inner);
  });
  describe_powers(fields);
}

void OptimizerConfig::Rate::describe_powers(ConfigFields& fields) {
  fields.group("power", [&](ConfigFields& inner) {
    inner.add("initial_learning_rate", power.initial_learning_rate, kInitial);
    inner.add("power", power.power, "of the step");
  });
  fields.group("power_linear", [&](ConfigFields& inner) {
    inner.add("initial_learning_rate", power_linear.initial_learning_rate, kInitial);
    inner.add("power", power_linear.power, "of the step");
    inner.add("total_decay_steps", power_linear.total_decay_steps,
              "steps until 0; 0: what the training has after the warm-up, counted from its end");
    inner.add("linear_decay_fraction", power_linear.linear_decay_fraction, "the last part, a straight line");
    inner.add("offset", power_linear.offset, kOffset);
  });
  fields.group("power_with_offset", [&](ConfigFields& inner) {
    inner.add("initial_learning_rate", power_with_offset.initial_learning_rate, kInitial);
    inner.add("power", power_with_offset.power, "of the step");
    inner.add("pre_offset_learning_rate", power_with_offset.pre_offset_learning_rate, "until the offset");
    inner.add("offset", power_with_offset.offset, kOffset);
  });
  fields.group("step_cosine_with_offset", [&](ConfigFields& inner) {
    inner.add("boundaries", step_cosine_with_offset.boundaries, "steps between which the rate follows a cosine");
    inner.add("values", step_cosine_with_offset.values, "rates at them");
    inner.add("offset", step_cosine_with_offset.offset, kOffset);
  });
}

void OptimizerConfig::Warmup::describe(ConfigFields& fields) {
  fields.add("type", type, "how the rate rises at the beginning; empty: it does not", {"", "linear", "polynomial"});
  fields.group("linear", [&](ConfigFields& inner) {
    inner.add("warmup_steps", linear.warmup_steps, "how many");
    inner.add("warmup_learning_rate", linear.warmup_learning_rate, "at step 0");
  });
  fields.group("polynomial", [&](ConfigFields& inner) {
    inner.add("warmup_steps", polynomial.warmup_steps, "how many");
    inner.add("power", polynomial.power, "of the part of them that is done");
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

MovingAverageOptions OptimizerConfig::averages() const {
  if (ema.average_decay == 0.0) return {};
  return {.average_decay = ema.average_decay,
          .start_step = ema.start_step,
          .dynamic_decay = ema.dynamic_decay,
          .trainable_weights_only = ema.trainable_weights_only};
}

}  // namespace cohort
