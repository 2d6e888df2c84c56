#include "cohort/more_update_rules.h"
#include "tests/equivalence/rules.h"

namespace cohort::equivalence {

std::vector<Rule> more_rules_of_keras() {
  return {
      {"adadelta", [] { return Adadelta({.learning_rate = 1.0, .weight_decay = 1e-3}); }},
      {"adamax", [] { return Adamax({.learning_rate = 0.01}); }},
      {"nadam", [] { return Nadam({.learning_rate = 0.01}); }},
      {"ftrl", [] { return Ftrl({.learning_rate = 0.05, .l1_regularization_strength = 1e-3}); }},
      {"ftrl_power",
       [] {
         return Ftrl({.learning_rate = 0.05,
                      .learning_rate_power = -0.7,
                      .l2_regularization_strength = 1e-3,
                      .l2_shrinkage_regularization_strength = 1e-3,
                      .beta = 0.1});
       }},
      {"lion", [] { return Lion({.weight_decay = 0.01}); }},
      {"adafactor", [] { return Adafactor({.learning_rate = 0.01}); }},
      {"lamb", [] { return LAMB({.learning_rate = 0.01, .weight_decay = 0.01, .exclude_from_weight_decay = {"1d"}}); }},
      {"lars", [] { return LARS({.learning_rate = 1.0, .trust_coefficient = 0.01, .weight_decay = 1e-3}); }},
      {"lars_popular",
       [] {
         return LARS({.learning_rate = 1.0, .nesterov = true, .classic_momentum = false, .trust_coefficient = 0.01});
       }},
  };
}

std::vector<Rule> more_rules_of_others() {
  constexpr auto kTorch = Formulation::kTorch;
  constexpr auto kLegacy = Formulation::kLegacy;
  return {
      {"lamb_torch", [] { return LAMB({.learning_rate = 0.01, .weight_decay = 0.01, .formulation = kTorch}); }},
      {"lamb_legacy",
       [] {
         return LAMB({.learning_rate = 0.01,
                      .weight_decay = 0.01,
                      .exclude_from_layer_adaptation = {"1d"},
                      .formulation = kLegacy});
       }},
      {"lars_torch",
       [] {
         return LARS({.learning_rate = 1.0,
                      .nesterov = true,
                      .trust_coefficient = 0.01,
                      .weight_decay = 1e-3,
                      .formulation = kTorch});
       }},
      {"lars_legacy", [] { return LARS({.learning_rate = 1.0, .formulation = kLegacy}); }},
  };
}

}  // namespace cohort::equivalence
