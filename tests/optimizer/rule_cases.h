// The optimizers with the options that the tests run, each beside the options that make the reference do the same.
#pragma once

#include <c10/util/StringUtil.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cohort/more_update_rules.h"
#include "cohort/optimizer.h"

namespace cohort::testing_support {

using nlohmann::json;

// Excluded from weight decay where a case excludes anything: parameters of rank 1.
inline const std::vector<std::vector<int64_t>> kShapes{{3}, {5, 7}, {2, 3, 4}, {1}, {33}};
inline const std::vector<int> kOfRankOne{0, 3, 4};
inline const std::vector<std::string> kExcluded{"1d"};

struct Case {
  std::string name;
  std::string reference;  // the class in torch.optim, or in reference.py
  Optimizer optimizer;
  json options;  // the same for the reference
};

inline void add_sgd_cases(std::vector<Case>& cases) {
  struct Variant {
    double momentum, dampening;
    bool nesterov;
  };
  for (const Variant v : {Variant{0.0, 0.0, false}, {0.9, 0.0, false}, {0.9, 0.3, false}, {0.8, 0.0, true}}) {
    for (const double decay : {0.0, 0.05}) {
      cases.push_back({c10::str("sgd ", v.momentum, " ", v.dampening, " ", v.nesterov, " ", decay),
                       "SGD",
                       SGD({.learning_rate = 0.05,
                            .momentum = v.momentum,
                            .nesterov = v.nesterov,
                            .dampening = v.dampening,
                            .weight_decay = decay,
                            .formulation = Formulation::kTorch}),
                       {{"lr", 0.05},
                        {"momentum", v.momentum},
                        {"dampening", v.dampening},
                        {"nesterov", v.nesterov},
                        {"weight_decay", decay}}});
    }
  }
}

inline void add_adam_cases(std::vector<Case>& cases) {
  for (const bool amsgrad : {false, true}) {
    for (const double decay : {0.0, 0.1}) {
      const json options{
          {"lr", 0.01}, {"betas", {0.8, 0.99}}, {"eps", 1e-6}, {"amsgrad", amsgrad}, {"weight_decay", decay}};
      cases.push_back({c10::str("adam ", amsgrad, " ", decay), "Adam",
                       Adam({.learning_rate = 0.01,
                             .beta_1 = 0.8,
                             .beta_2 = 0.99,
                             .epsilon = 1e-6,
                             .amsgrad = amsgrad,
                             .weight_decay = decay,
                             .formulation = Formulation::kTorch}),
                       options});
      cases.push_back({c10::str("adamw ", amsgrad, " ", decay), "AdamW",
                       AdamW({.learning_rate = 0.01,
                              .beta_1 = 0.8,
                              .beta_2 = 0.99,
                              .epsilon = 1e-6,
                              .amsgrad = amsgrad,
                              .weight_decay = decay,
                              .formulation = Formulation::kTorch}),
                       options});
    }
  }
  cases.push_back(
      {"adam defaults", "Adam", Adam({.epsilon = 1e-8, .formulation = Formulation::kTorch}), json::object()});
  cases.push_back({"adamw defaults", "AdamW",
                   AdamW({.epsilon = 1e-8, .weight_decay = 1e-2, .formulation = Formulation::kTorch}), json::object()});
}

inline void add_rmsprop_cases(std::vector<Case>& cases) {
  for (const bool centered : {false, true}) {
    for (const double momentum : {0.0, 0.9}) {
      for (const double decay : {0.0, 0.05}) {
        cases.push_back({c10::str("rmsprop ", centered, " ", momentum, " ", decay),
                         "RMSprop",
                         RMSprop({.learning_rate = 0.003,
                                  .rho = 0.9,
                                  .momentum = momentum,
                                  .epsilon = 1e-4,
                                  .centered = centered,
                                  .weight_decay = decay,
                                  .formulation = Formulation::kTorch}),
                         {{"lr", 0.003},
                          {"alpha", 0.9},
                          {"momentum", momentum},
                          {"eps", 1e-4},
                          {"centered", centered},
                          {"weight_decay", decay}}});
      }
    }
  }
}

inline void add_adagrad_cases(std::vector<Case>& cases) {
  for (const double lr_decay : {0.0, 0.02}) {
    for (const double initial : {0.0, 0.5}) {
      for (const double decay : {0.0, 0.05}) {
        cases.push_back(
            {c10::str("adagrad ", lr_decay, " ", initial, " ", decay),
             "Adagrad",
             Adagrad({.learning_rate = 0.05,
                      .initial_accumulator_value = initial,
                      .epsilon = 1e-10,
                      .lr_decay = lr_decay,
                      .weight_decay = decay,
                      .formulation = Formulation::kTorch}),
             {{"lr", 0.05}, {"initial_accumulator_value", initial}, {"lr_decay", lr_decay}, {"weight_decay", decay}}});
      }
    }
  }
}

inline void add_layerwise_cases(std::vector<Case>& cases) {
  for (const double decay : {0.0, 0.05}) {
    cases.push_back(
        {c10::str("lamb ", decay),
         "LAMB",
         LAMB({.learning_rate = 0.01,
               .beta_1 = 0.8,
               .beta_2 = 0.99,
               .epsilon = 1e-6,
               .weight_decay = decay,
               .exclude_from_weight_decay = kExcluded,
               .formulation = Formulation::kTorch}),
         {{"lr", 0.01}, {"betas", {0.8, 0.99}}, {"eps", 1e-6}, {"weight_decay", decay}, {"excluded", kOfRankOne}}});
    for (const bool nesterov : {false, true}) {
      cases.push_back({c10::str("lars ", nesterov, " ", decay),
                       "LARS",
                       LARS({.learning_rate = 0.1,
                             .momentum = 0.9,
                             .nesterov = nesterov,
                             .trust_coefficient = 0.02,
                             .weight_decay = decay,
                             .exclude_from_weight_decay = kExcluded,
                             .formulation = Formulation::kTorch}),
                       {{"lr", 0.1},
                        {"momentum", 0.9},
                        {"nesterov", nesterov},
                        {"trust", 0.02},
                        {"eps", 1e-8},
                        {"weight_decay", decay},
                        {"excluded", kOfRankOne}}});
    }
  }
}

// The rules and forms that the reference does not have: their kernels are compared with their tensor form, and both
// with TensorFlow's numbers in tests/golden.
inline std::vector<Case> keras_cases() {
  const EmaOptions ema{.use_ema = true, .ema_momentum = 0.9, .ema_overwrite_frequency = 7};
  const std::vector<std::pair<const char*, Optimizer>> list = {
      {"sgd", SGD({.learning_rate = 0.05, .weight_decay = 0.02})},
      {"momentum", SGD({.learning_rate = 0.05, .momentum = 0.9, .gradient = {.l2 = 0.01}})},
      {"nesterov", SGD({.learning_rate = 0.05, .momentum = 0.9, .nesterov = true, .ema = ema})},
      {"adam", Adam({.amsgrad = true, .weight_decay = 0.1})},
      {"adamw", AdamW({.exclude_from_weight_decay = kExcluded, .ema = ema})},
      {"rmsprop", RMSprop({.learning_rate = 0.01, .momentum = 0.9, .centered = true, .weight_decay = 0.1})},
      {"rmsprop legacy", RMSprop({.learning_rate = 0.01, .formulation = Formulation::kLegacy})},
      {"adagrad", Adagrad({.learning_rate = 0.05})},
      {"adagrad legacy", Adagrad({.learning_rate = 0.05, .formulation = Formulation::kLegacy})},
      {"adadelta", Adadelta({.learning_rate = 0.5, .epsilon = 1e-4})},
      {"adamax", Adamax({.learning_rate = 0.01, .gradient = {.l2 = 0.01}})},
      {"nadam", Nadam({.learning_rate = 0.01, .weight_decay = 0.1, .ema = ema})},
      {"ftrl", Ftrl({.learning_rate = 0.1, .l1_regularization_strength = 0.01, .beta = 0.1})},
      {"ftrl power",
       Ftrl({.learning_rate = 0.1, .learning_rate_power = -0.7, .l2_shrinkage_regularization_strength = 0.02})},
      {"lion", Lion({.weight_decay = 0.1})},
      {"adafactor", Adafactor({.learning_rate = 0.01, .weight_decay = 0.01, .ema = ema})},
      {"lamb", LAMB({.learning_rate = 0.01, .weight_decay = 0.05, .exclude_from_layer_adaptation = kExcluded})},
      {"lamb legacy", LAMB({.weight_decay = 0.05, .formulation = Formulation::kLegacy})},
      {"lars", LARS({.weight_decay = 0.05, .exclude_from_weight_decay = kExcluded})},
      {"lars popular", LARS({.nesterov = true, .classic_momentum = false, .weight_decay = 0.05, .ema = ema})},
  };
  std::vector<Case> cases;
  for (const auto& [name, optimizer] : list) cases.push_back({name, "", optimizer, {}});
  return cases;
}

inline std::vector<Case> torch_cases() {
  std::vector<Case> cases;
  add_sgd_cases(cases);
  add_adam_cases(cases);
  add_rmsprop_cases(cases);
  add_adagrad_cases(cases);
  add_layerwise_cases(cases);
  return cases;
}

inline std::vector<Case> all_cases() {
  std::vector<Case> cases = torch_cases();
  for (Case& each : keras_cases()) cases.push_back(std::move(each));
  return cases;
}

}  // namespace cohort::testing_support
