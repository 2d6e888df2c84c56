// Every optimizer in every formulation, with what may surround it, and each that Model Garden's configuration makes.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/models/experiment.h"
#include "cohort/optimizer.h"

namespace cohort::equivalence {

struct Rule {
  std::string name;
  std::function<Optimizer()> make;
};

// Returns those of the wing that has more of them, if this build has it: in Keras' form, and in others.
std::vector<Rule> more_rules_of_keras();
std::vector<Rule> more_rules_of_others();

inline std::vector<Rule> with(std::vector<Rule> rules, const std::vector<Rule>& more) {
  rules.insert(rules.end(), more.begin(), more.end());
  return rules;
}

inline std::vector<Rule> rules_of_keras() {
  const std::vector<Rule> core = {
      {"sgd", [] { return SGD({.learning_rate = 0.1}); }},
      {"momentum", [] { return SGD({.learning_rate = 0.05, .momentum = 0.9}); }},
      {"nesterov",
       [] { return SGD({.learning_rate = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 1e-3}); }},
      {"adam", [] { return Adam({.learning_rate = 0.01}); }},
      {"amsgrad", [] { return Adam({.learning_rate = 0.01, .amsgrad = true}); }},
      {"adamw", [] { return AdamW({.learning_rate = 0.01, .exclude_from_weight_decay = {"1d"}}); }},
      {"rmsprop", [] { return RMSprop({.learning_rate = 0.01}); }},
      {"rmsprop_centered", [] { return RMSprop({.learning_rate = 0.01, .momentum = 0.9, .centered = true}); }},
      {"adagrad", [] { return Adagrad({.learning_rate = 0.05}); }},
  };
  return with(core, more_rules_of_keras());
}

// Where LibTorch (or the paper) has another form, and where Keras' legacy optimizers have one.
inline std::vector<Rule> rules_of_others() {
  constexpr auto kTorch = Formulation::kTorch;
  constexpr auto kLegacy = Formulation::kLegacy;
  const std::vector<Rule> core = {
      {"momentum_torch",
       [] { return SGD({.learning_rate = 0.05, .momentum = 0.9, .dampening = 0.1, .formulation = kTorch}); }},
      {"nesterov_torch",
       [] {
         return SGD(
             {.learning_rate = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 1e-3, .formulation = kTorch});
       }},
      {"momentum_legacy", [] { return SGD({.learning_rate = 0.05, .momentum = 0.9, .formulation = kLegacy}); }},
      {"adam_torch", [] { return Adam({.learning_rate = 0.01, .weight_decay = 1e-3, .formulation = kTorch}); }},
      {"amsgrad_torch", [] { return Adam({.learning_rate = 0.01, .amsgrad = true, .formulation = kTorch}); }},
      {"adam_legacy", [] { return Adam({.learning_rate = 0.01, .formulation = kLegacy}); }},
      {"adamw_torch", [] { return AdamW({.learning_rate = 0.01, .formulation = kTorch}); }},
      {"rmsprop_torch", [] { return RMSprop({.learning_rate = 0.01, .formulation = kTorch}); }},
      {"rmsprop_centered_torch",
       [] { return RMSprop({.learning_rate = 0.01, .momentum = 0.9, .centered = true, .formulation = kTorch}); }},
      {"rmsprop_legacy", [] { return RMSprop({.learning_rate = 0.01, .formulation = kLegacy}); }},
      {"rmsprop_momentum_legacy",
       [] { return RMSprop({.learning_rate = 0.01, .momentum = 0.9, .formulation = kLegacy}); }},
      {"adagrad_torch", [] { return Adagrad({.learning_rate = 0.05, .lr_decay = 0.02, .formulation = kTorch}); }},
      {"adagrad_legacy", [] { return Adagrad({.learning_rate = 0.05, .formulation = kLegacy}); }},
  };
  return with(core, more_rules_of_others());
}

// Returns rules with what may surround any of them.
inline std::vector<Rule> surrounded_rules() {
  return {
      {"clipped", [] { return Adam({.learning_rate = 0.01, .gradient = {.global_clipnorm = 0.1}}); }},
      {"clipnorm", [] { return SGD({.learning_rate = 0.1, .gradient = {.clipnorm = 0.02, .l2 = 1e-3}}); }},
      {"clipvalue",
       [] { return SGD({.learning_rate = 0.1, .gradient = {.clipvalue = 0.01, .loss_scale_factor = 8}}); }},
      {"averaged",
       [] {
         return SGD(
             {.learning_rate = 0.1, .ema = {.use_ema = true, .ema_momentum = 0.8, .ema_overwrite_frequency = 3}});
       }},
      {"cosine", [] { return SGD({.learning_rate = CosineDecay({.initial_learning_rate = 0.1, .decay_steps = 15})}); }},
  };
}

// The rules of a configuration, by the names that Model Garden gives them.
inline std::vector<Rule> rules_of_model_garden() {
  std::vector<Rule> list;
  for (const char* type : {"sgd", "sgd_experimental", "adam", "adam_experimental", "adamw", "adamw_experimental",
                           "rmsprop", "adagrad", "lamb", "lars"}) {
    if ((type == std::string_view("lamb") || type == std::string_view("lars")) && more_rules_of_keras().empty())
      continue;
    list.push_back({std::string("garden_") + type, [type] {
                      OptimizerConfig config;
                      config.optimizer.type = type;
                      config.optimizer.sgd.momentum = config.optimizer.sgd_experimental.momentum = 0.9;
                      config.optimizer.sgd.decay = 0.01;
                      config.optimizer.adamw.weight_decay_rate = config.optimizer.lamb.weight_decay_rate = 0.01;
                      config.optimizer.lars.weight_decay_rate = 1e-3;
                      config.learning_rate.constant.learning_rate = 0.02;
                      return config.build(/*train_steps=*/20, /*replicas=*/1, /*begin=*/0, /*l2=*/1e-3);
                    }});
  }
  return list;
}

inline const std::vector<Rule>& rules() {
  static const std::vector<Rule> list = [] {
    std::vector<Rule> all;
    for (const auto& part : {rules_of_keras(), rules_of_others(), surrounded_rules(), rules_of_model_garden()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return list;
}

}  // namespace cohort::equivalence
