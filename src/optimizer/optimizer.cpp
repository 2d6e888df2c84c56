#include "cohort/optimizer.h"

#include <array>

#include "base/fail.h"
#include "base/named.h"
#include "optimizer/rules/rule.h"

namespace cohort {

Optimizer::Optimizer(std::shared_ptr<const UpdateRule> rule, Schedule learning_rate, GradientOptions gradient,
                     std::vector<std::string> exclude_from_weight_decay)
    : rule_(std::move(rule)),
      learning_rate_(std::move(learning_rate)),
      gradient_(gradient),
      exclude_from_weight_decay_(std::move(exclude_from_weight_decay)) {
  if (rule_ == nullptr) fail<InvalidArgument>("[optimizer] no update rule came");
  if (learning_rate_.is_constant()) require_not_negative(name().c_str(), "learning_rate", learning_rate_(0));
  require_not_negative(name().c_str(), "global_clipnorm", gradient_.global_clipnorm);
  require_not_negative(name().c_str(), "clipvalue", gradient_.clipvalue);
  if (gradient_.global_clipnorm > 0.0 && gradient_.clipvalue > 0.0) {
    fail<InvalidArgument>("[optimizer] ", name(), ": global_clipnorm ", gradient_.global_clipnorm, " and clipvalue ",
                          gradient_.clipvalue, " came, one of them at most was wanted");
  }
  if (gradient_.accumulate_steps < 1) {
    fail<InvalidArgument>("[optimizer] ", name(), ": accumulate_steps is ", gradient_.accumulate_steps,
                          ", wanted 1 or more");
  }
  if (gradient_.loss_scale && !(gradient_.loss_scale->initial_scale > 0.0 && gradient_.loss_scale->growth_steps > 0)) {
    fail<InvalidArgument>("[optimizer] ", name(), ": loss_scale: initial_scale is ",
                          gradient_.loss_scale->initial_scale, " and growth_steps ", gradient_.loss_scale->growth_steps,
                          ", wanted positive numbers");
  }
  for (const std::string& pattern : exclude_from_weight_decay_) {
    if (pattern.empty()) {
      fail<InvalidArgument>("[optimizer] ", name(),
                            ": an empty pattern in exclude_from_weight_decay would exclude everything");
    }
  }
}

namespace {

struct NamedOptimizer {
  std::string_view name;
  Optimizer (*make)();
};

const std::array kOptimizers = {
    NamedOptimizer{"sgd", [] { return SGD(); }},         NamedOptimizer{"adam", [] { return Adam(); }},
    NamedOptimizer{"adamw", [] { return AdamW(); }},     NamedOptimizer{"rmsprop", [] { return RMSprop(); }},
    NamedOptimizer{"adagrad", [] { return Adagrad(); }}, NamedOptimizer{"lamb", [] { return LAMB(); }},
    NamedOptimizer{"lars", [] { return LARS(); }},
};

}  // namespace

Optimizer::Optimizer(const char* name) : Optimizer(find_named(kOptimizers, name, "optimizer", "optimizer").make()) {}

const std::string& Optimizer::name() const {
  return rule_->name();
}

Optimizer Optimizer::with_gradient(const GradientOptions& gradient) const {
  return {rule_, learning_rate_, gradient, exclude_from_weight_decay_};
}

Optimizer LossScaleOptimizer(const Optimizer& inner, const LossScale& options) {
  GradientOptions gradient = inner.gradient();
  gradient.loss_scale = options;
  return inner.with_gradient(gradient);
}

bool Optimizer::decays(const std::string& name, int64_t rank) const {
  for (const std::string& pattern : exclude_from_weight_decay_) {
    if (pattern == "1d" ? rank <= 1 : name.find(pattern) != std::string::npos) return false;
  }
  return true;
}

}  // namespace cohort
