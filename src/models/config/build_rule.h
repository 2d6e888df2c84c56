// How a rule is made of its group in a configuration, for the core's rules and those of wings.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "cohort/models/experiment.h"

namespace cohort {

// The options that a rule's group has in common with the others, and those that surround the rule.
struct RuleParts {
  Schedule rate;
  GradientOptions gradient;
  const OptimizerConfig::Rule& rule;
  std::vector<std::string> excluded;  // the names that weight decay leaves out, by the rule's group
};

inline Formulation formulation_of(const OptimizerConfig::Rule& rule) {
  if (*rule.formulation == "torch") return Formulation::kTorch;
  const bool later = rule.type->ends_with("_experimental");
  return *rule.formulation == "keras" || later ? Formulation::kKeras : Formulation::kLegacy;
}

inline void add_names(std::vector<std::string>& names, const std::vector<std::string>& more) {
  for (const std::string& name : more) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
}

// Adds the clipping that either the rule or its group asks for.
inline void add_clips(GradientOptions& gradient, const OptimizerConfig::Clips& clips) {
  gradient.clipnorm = std::max<double>(gradient.clipnorm, clips.clipnorm);
  gradient.clipvalue = std::max<double>(gradient.clipvalue, clips.clipvalue);
  const double global = clips.global_clipnorm;
  if (global > 0.0) {
    gradient.global_clipnorm = gradient.global_clipnorm > 0.0 ? std::min(gradient.global_clipnorm, global) : global;
  }
}

// Returns what does not decay. If nothing is said, an L2 decay is of kernels only.
inline std::vector<std::string> excluded(const RuleParts& common) {
  std::vector<std::string> names = common.excluded;
  add_names(names, common.rule.exclude_from_weight_decay);
  if (common.gradient.l2 > 0.0 && names.empty()) return {"1d"};
  return names;
}

// Sets the options that all rules have. `decay` is the group's. Without a decay there is nothing to exclude from it,
// but for a trust ratio.
template <typename Options>
Options with_common(const RuleParts& common, const OptimizerConfig::Clips& group, double decay, Options options) {
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

template <typename Options, typename Group>
Options with_moments(const Group& own) {
  Options options;
  options.beta_1 = own.beta_1;
  options.beta_2 = own.beta_2;
  options.epsilon = own.epsilon;
  if constexpr (requires { options.amsgrad; }) options.amsgrad = own.amsgrad;
  return options;
}

// Makes the rules that a wing has, by the type of the configuration.
struct RuleBuilder {
  Optimizer (*build)(const RuleParts& common, const OptimizerConfig::Rule& rule);
};

}  // namespace cohort
