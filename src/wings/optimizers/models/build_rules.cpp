// Makes the rules of this wing of a configuration; see models/config/build_optimizer.cpp.
#include "wings/optimizers/models/build_rules.h"

#include "cohort/more_update_rules.h"

namespace cohort {

namespace {

Optimizer build_layerwise(RuleParts common, const OptimizerConfig::Rule& rule) {
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
Optimizer build_of_keras(const RuleParts& common, const OptimizerConfig::Rule& rule) {
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

}  // namespace

Optimizer build_more_rule(const RuleParts& common, const OptimizerConfig::Rule& rule) {
  if (rule.type == "lamb" || rule.type == "lars") return build_layerwise(common, rule);
  return build_of_keras(common, rule);
}

}  // namespace cohort
