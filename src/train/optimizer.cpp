#include "cohort/optimizer.h"

#include "base/fail.h"
#include "train/update_rule.h"

namespace cohort {

Optimizer::Optimizer(std::shared_ptr<const UpdateRule> rule, Schedule learning_rate, GradientOptions gradient,
                     std::vector<std::string> exclude_from_weight_decay)
    : rule_(std::move(rule)),
      learning_rate_(std::move(learning_rate)),
      gradient_(gradient),
      exclude_from_weight_decay_(std::move(exclude_from_weight_decay)) {
  if (learning_rate_.is_constant() && !(learning_rate_(0) >= 0.0)) {
    fail<InvalidArgument>("[optimizer] ", name(), ": learning_rate is ", learning_rate_(0), ", wanted 0 or more");
  }
  if (gradient_.global_clipnorm < 0.0 || gradient_.clipvalue < 0.0) {
    fail<InvalidArgument>("[optimizer] ", name(), ": global_clipnorm is ", gradient_.global_clipnorm, " and clipvalue is ",
                          gradient_.clipvalue, ", wanted 0 (off) or more");
  }
  if (gradient_.global_clipnorm > 0.0 && gradient_.clipvalue > 0.0) {
    fail<InvalidArgument>("[optimizer] ", name(), ": give global_clipnorm or clipvalue, not both");
  }
  if (gradient_.accumulate_steps < 1) {
    fail<InvalidArgument>("[optimizer] ", name(), ": accumulate_steps is ", gradient_.accumulate_steps, ", wanted 1 or more");
  }
}

const std::string& Optimizer::name() const {
  return rule_->name();
}

bool Optimizer::decays(const std::string& name, int64_t rank) const {
  for (const std::string& pattern : exclude_from_weight_decay_) {
    if (pattern == "1d" ? rank <= 1 : name.find(pattern) != std::string::npos) return false;
  }
  return true;
}

}  // namespace cohort
