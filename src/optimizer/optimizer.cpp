#include "cohort/optimizer.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/fail.h"
#include "base/named.h"
#include "optimizer/rules/rule.h"

namespace cohort {

namespace {

bool is_named(const std::vector<std::string>& patterns, const std::string& name, int64_t rank) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return pattern == "1d" ? rank <= 1 : name.find(pattern) != std::string::npos;
  });
}

void require_patterns(const std::string& rule, const char* field, const std::vector<std::string>& patterns) {
  if (std::find(patterns.begin(), patterns.end(), "") == patterns.end()) return;
  fail<InvalidArgument>("[optimizer] ", rule, ": an empty pattern in ", field, " would exclude everything");
}

void require_gradient_options(const std::string& rule, const GradientOptions& gradient) {
  int clips = 0;
  using Field = std::pair<const char*, double>;
  for (const auto& [field, value] :
       {Field{"clipnorm", gradient.clipnorm}, Field{"global_clipnorm", gradient.global_clipnorm},
        Field{"clipvalue", gradient.clipvalue}, Field{"loss_scale_factor", gradient.loss_scale_factor},
        Field{"l2", gradient.l2}}) {
    require_not_negative(rule.c_str(), field, value);
    if (std::string_view(field).find("clip") != std::string_view::npos && value > 0.0) ++clips;
  }
  if (clips > 1) {
    fail<InvalidArgument>("[optimizer] ", rule, ": clipnorm ", gradient.clipnorm, ", global_clipnorm ",
                          gradient.global_clipnorm, " and clipvalue ", gradient.clipvalue,
                          " came, one of them at most was wanted");
  }
  if (gradient.gradient_accumulation_steps < 1) {
    fail<InvalidArgument>("[optimizer] ", rule, ": gradient_accumulation_steps is ",
                          gradient.gradient_accumulation_steps, ", wanted 1 or more");
  }
  if (gradient.loss_scale && !(gradient.loss_scale->initial_scale > 0.0 && gradient.loss_scale->growth_steps > 0)) {
    fail<InvalidArgument>("[optimizer] ", rule, ": loss_scale: initial_scale is ", gradient.loss_scale->initial_scale,
                          " and growth_steps ", gradient.loss_scale->growth_steps, ", wanted positive numbers");
  }
}

}  // namespace

Optimizer::Optimizer(std::shared_ptr<const UpdateRule> rule, Schedule learning_rate, GradientOptions gradient,
                     std::vector<std::string> exclude_from_weight_decay,
                     std::vector<std::string> exclude_from_layer_adaptation, bool master_weights)
    : rule_(std::move(rule)),
      learning_rate_(std::move(learning_rate)),
      gradient_(gradient),
      exclude_from_weight_decay_(std::move(exclude_from_weight_decay)),
      exclude_from_layer_adaptation_(std::move(exclude_from_layer_adaptation)),
      master_weights_(master_weights) {
  if (rule_ == nullptr) fail<InvalidArgument>("[optimizer] no update rule came");
  if (learning_rate_.is_constant()) require_not_negative(name().c_str(), "learning_rate", learning_rate_(0));
  require_gradient_options(name(), gradient_);
  require_patterns(name(), "exclude_from_weight_decay", exclude_from_weight_decay_);
  require_patterns(name(), "exclude_from_layer_adaptation", exclude_from_layer_adaptation_);
}

namespace {

const std::array kOptimizers = {
    Named<Optimizer>{"sgd", [] { return SGD(); }},         Named<Optimizer>{"adam", [] { return Adam(); }},
    Named<Optimizer>{"adamw", [] { return AdamW(); }},     Named<Optimizer>{"rmsprop", [] { return RMSprop(); }},
    Named<Optimizer>{"adagrad", [] { return Adagrad(); }},
};

}  // namespace

Optimizer::Optimizer(const char* name)
    : Optimizer(find_named<Optimizer>(kOptimizers, name, "optimizer", "optimizer", "optimizers").make()) {}

const std::string& Optimizer::name() const {
  return rule_->name();
}

Optimizer Optimizer::with_gradient(const GradientOptions& gradient) const {
  return {rule_, learning_rate_, gradient, exclude_from_weight_decay_, exclude_from_layer_adaptation_, master_weights_};
}

Optimizer LossScaleOptimizer(const Optimizer& inner, const LossScale& options) {
  GradientOptions gradient = inner.gradient();
  gradient.loss_scale = options;
  return inner.with_gradient(gradient);
}

bool Optimizer::decays(const std::string& name, int64_t rank) const {
  return !is_named(exclude_from_weight_decay_, name, rank);
}

bool Optimizer::adapts(const std::string& name, int64_t rank) const {
  return !is_named(exclude_from_layer_adaptation_, name, rank);
}

}  // namespace cohort
