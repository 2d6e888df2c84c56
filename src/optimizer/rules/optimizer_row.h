// OptimizerRow: the options of an optimizer by their names, for files. Wings extend the core with a row for each rule.
#pragma once

#include <any>
#include <functional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/fail.h"
#include "cohort/optimizer.h"

namespace cohort {

using OptionField = std::variant<bool*, double*, Schedule*, GradientOptions*, EmaOptions*>;
using OptionFields = std::vector<std::pair<std::string_view, OptionField>>;

struct OptimizerRow {
  std::string_view name;  // Keras' class
  std::any options;       // its struct of options, with the defaults
  std::function<Optimizer(const std::any& options)> make;
  // Returns the fields by name; none: the options are another rule's. NotFound: an option that Keras lacks is set.
  std::function<OptionFields(std::any& options)> fields;
};

template <typename Options>
OptionFields fields_of(Options& o) {
  if constexpr (requires { o.formulation; }) {
    if (o.formulation != Formulation::kKeras) fail<NotFound>("the formulation is not Keras'");
  }
  bool excludes = !o.exclude_from_weight_decay.empty();
  if constexpr (requires { o.exclude_from_layer_adaptation; }) excludes |= !o.exclude_from_layer_adaptation.empty();
  if (excludes) fail<NotFound>("parameters are excluded from weight decay or layer adaptation");
  OptionFields fields = {{"learning_rate", &o.learning_rate},
                         {"weight_decay", &o.weight_decay},
                         {"gradient", &o.gradient},
                         {"ema", &o.ema}};
  // clang-format off
#define COHORT_FIELD(field) if constexpr (requires { o.field; }) fields.emplace_back(#field, &o.field)
  COHORT_FIELD(amsgrad); COHORT_FIELD(beta); COHORT_FIELD(beta_1); COHORT_FIELD(beta_2); COHORT_FIELD(centered);
  COHORT_FIELD(epsilon); COHORT_FIELD(initial_accumulator_value); COHORT_FIELD(l1_regularization_strength);
  COHORT_FIELD(l2_regularization_strength); COHORT_FIELD(l2_shrinkage_regularization_strength);
  COHORT_FIELD(learning_rate_power); COHORT_FIELD(momentum); COHORT_FIELD(nesterov); COHORT_FIELD(rho);
#undef COHORT_FIELD
  // clang-format on
  return fields;
}

template <typename Options>
OptimizerRow optimizer_row(std::string_view name, Optimizer (*make)(const Options&)) {
  return {.name = name,
          .options = Options(),
          .make = [make](const std::any& options) { return make(std::any_cast<const Options&>(options)); },
          .fields =
              [](std::any& options) {
                auto* const own = std::any_cast<Options>(&options);
                return own == nullptr ? OptionFields() : fields_of(*own);
              }};
}

}  // namespace cohort
