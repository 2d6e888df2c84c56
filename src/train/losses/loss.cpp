// A loss is a fraction: a sum of weighted values over what they are divided by. Both are sums over the examples, hence
// over the replicas that share a batch: each has its share of the sum, and all know the divisor. The common case is
// that the divisor is the number of examples, which everybody knows and which needs no exchange.
#include "cohort/train/loss.h"

#include <ATen/Functions.h>

#include "base/access.h"
#include "base/fail.h"
#include "cohort/replica.h"
#include "strategy/combinations.h"
#include "strategy/core.h"
#include "strategy/replica_scope.h"
#include "train/losses/support.h"

namespace cohort {

namespace {

class FunctionLoss final : public LossRule {
 public:
  FunctionLoss(std::string name, Loss::Function values) : name_(std::move(name)), values_(std::move(values)) {}

  const std::string& name() const override { return name_; }

  torch::Tensor values(const torch::Tensor& y, const torch::Tensor& prediction) const override {
    torch::Tensor values = values_(y, prediction);
    const bool fits = values.defined() && values.dim() > 0 && values.size(0) == prediction.size(0);
    if (fits) return values;
    fail<InvalidArgument>("[losses] ", name_, ": the function returned ",
                          values.defined() ? c10::str("shape ", values.sizes()) : std::string("an undefined tensor"),
                          ", wanted one value for each of the ", prediction.size(0), " examples: do not reduce it");
  }

 private:
  std::string name_;
  Loss::Function values_;
};

class PartOfReplica final : public WholeBatch {
 public:
  explicit PartOfReplica(Replica& replica) : replica_(replica) {}
  int64_t part() const override { return replica_.id(); }
  torch::Tensor sum(const torch::Tensor& mine) const override { return replica_.all_reduce(ReduceOp::kSum, mine); }
  torch::Tensor rows(const torch::Tensor& mine) const override { return replica_.all_gather(mine); }

 private:
  Replica& replica_;
};

// The sums of a part of a batch.
struct Weighed {
  torch::Tensor each;     // values times weights
  torch::Tensor divisor;  // the reduction's divisor, a sum over the part; undefined: the number of the values
  bool of_batch = false;  // the values are the batch's as a whole, so that the parts have them in common
};

// Values of which a weight is given for each element, although the loss is their mean over the last dimension.
bool weighs_elements(const torch::Tensor& factor, const torch::Tensor& each) {
  return factor.defined() && factor.dim() == each.dim() && factor.size(-1) == each.size(-1);
}

Weighed weigh(const LossRule& rule, LossReduction reduction, const BatchLossRule::Values& values,
              const torch::Tensor& weight, const torch::Tensor& mask) {
  const std::string speaker = "[losses] " + rule.name();
  torch::Tensor each = values.each;
  if (values.of_batch) {
    if (!weight.defined() && !mask.defined()) return {.each = each, .divisor = {}, .of_batch = true};
    if (each.dim() > 0) {
      fail<InvalidArgument>(speaker, ": the batch as a whole has values of shape ", each.sizes(),
                            ", which weights and masks of examples do not fit");
    }
    const torch::Tensor& examples = weight.defined() ? weight : mask;
    each = each.expand({examples.size(0)});
  }
  torch::Tensor kept = values.counted;
  if (mask.defined()) kept = kept.defined() ? masked_weight(speaker, kept, mask).to(torch::kBool) : mask;
  torch::Tensor factor = masked_weight(speaker, weight, kept);
  const bool by_element = weighs_elements(factor, each);
  if (rule.averages_last() && each.dim() > 1 && !by_element) each = each.mean(-1);
  torch::Tensor divisor;
  if (factor.defined()) {
    const torch::Tensor fitted = fit_weight(speaker, factor, each);
    each = each * fitted;
    if (reduction == LossReduction::kMeanWithSampleWeight) {
      divisor = fitted.to(each.scalar_type()).sum();
    } else if (kept.defined()) {
      divisor = fit_weight(speaker, kept.to(torch::kBool), each).expand_as(each).to(each.scalar_type()).sum();
    }
  }
  if (rule.averages_last() && by_element && each.dim() > 1) {
    if (divisor.defined()) divisor = divisor / static_cast<double>(std::max<int64_t>(1, each.size(-1)));
    each = each.mean(-1);
  }
  return {.each = each, .divisor = divisor};
}

BatchLossRule::Values values_of(const LossRule& rule, const WholeBatch& batch, const torch::Tensor& y,
                                const torch::Tensor& prediction) {
  if (const auto* whole = dynamic_cast<const BatchLossRule*>(&rule)) return whole->values_within(batch, y, prediction);
  return {.each = rule.values(y, prediction), .counted = {}};
}

torch::Tensor divided(const torch::Tensor& sum, const torch::Tensor& divisor) {
  const torch::Tensor nothing = divisor.eq(0);
  return at::where(nothing, at::zeros_like(sum), sum / divisor.masked_fill(nothing, 1));
}

// Returns whether the loss is the mean over the examples, so that nothing has to be known of other replicas to tell a
// share of it.
bool is_plain_mean(const LossRule& rule, LossReduction reduction, const torch::Tensor& weight,
                   const torch::Tensor& mask) {
  if (mask.defined() || dynamic_cast<const BatchLossRule*>(&rule) != nullptr) return false;
  return reduction == LossReduction::kSumOverBatchSize ||
         (reduction == LossReduction::kMeanWithSampleWeight && !weight.defined());
}

// Returns the sum of a loss over a batch, divided by a number and as it is.
LossShare divided_sum(const Loss& loss, const torch::Tensor& y, const torch::Tensor& prediction,
                      const torch::Tensor& weight, double divisor) {
  if (weight.defined()) {
    const torch::Tensor total = loss.sum(y, prediction, weight);
    return {.value = total / divisor, .total = total};
  }
  require_targets(loss.name(), y, prediction);
  return loss.rule().divided_sum(y, prediction, divisor);
}

int64_t examples_of_step(Replica& replica, const torch::Tensor& prediction) {
  if (const auto known = replica.global_batch_size()) return *known;
  const torch::Tensor mine = torch::full({1}, prediction.size(0), torch::kLong).to(replica.device());
  return replica.all_reduce(ReduceOp::kSum, mine).item<int64_t>();
}

// Returns the loss of a batch by its reduction. A mean is multiplied by `part`.
torch::Tensor reduced(const Loss& loss, const torch::Tensor& y, const torch::Tensor& prediction,
                      const torch::Tensor& weight, const torch::Tensor& mask, double part) {
  const LossReduction reduction = loss.reduction();
  if (is_plain_mean(loss.rule(), reduction, weight, mask)) {
    const auto examples = static_cast<double>(std::max<int64_t>(1, prediction.size(0)));
    return divided_sum(loss, y, prediction, weight, examples / part).value;
  }
  require_targets(loss.name(), y, prediction);
  const Weighed weighed = weigh(loss.rule(), reduction, values_of(loss.rule(), OnePart(), y, prediction), weight, mask);
  if (reduction == LossReduction::kNone) return weighed.each;
  torch::Tensor total = weighed.each.sum();
  if (reduction == LossReduction::kSum) return total;
  if (weighed.divisor.defined()) return divided(total, weighed.divisor / part);
  return total / (static_cast<double>(std::max<int64_t>(1, weighed.each.numel())) / part);
}

bool is_mean(LossReduction reduction) {
  return reduction == LossReduction::kSumOverBatchSize || reduction == LossReduction::kMeanWithSampleWeight;
}

// Returns what the mean over a replica's examples is multiplied by, so that the means of replicas with as many examples
// add up to that of the step.
double part_of_step(const Replica& replica) {
  return Access::core(replica).placement().step_weight() / static_cast<double>(replica.num_replicas_in_sync());
}

void require_reduced(const Loss& loss) {
  if (loss.reduction() != LossReduction::kNone) return;
  fail<InvalidArgument>("[losses] ", loss.name(),
                        ": its reduction is kNone, but a step takes the gradients of one number");
}

void require_whole_step(const Replica& replica, const std::string& name) {
  if (Access::core(replica).placement().step_weight() == 1.0) return;
  require_pair(c10::str("[losses] ", name, ":"),
               {.feature = kWholeStepLosses, .said = "its divisor, or its values, depend on all examples of the step"},
               {.feature = kSynchronousServers, .said = "this worker of parameter servers has a share of them"});
}

Replica& own_replica(std::string_view caller) {
  if (Replica* const replica = Replica::current()) return *replica;
  fail<FailedPrecondition>("[losses] ", caller, ": called outside run(), where no replica has a share");
}

}  // namespace

torch::Tensor LossRule::sum(const torch::Tensor& y, const torch::Tensor& prediction) const {
  const torch::Tensor each = values(y, prediction);
  const int64_t count = values_an_example(each);
  return count == 1 ? each.sum() : each.sum() / static_cast<double>(count);
}

LossShare LossRule::divided_sum(const torch::Tensor& y, const torch::Tensor& prediction, double divisor) const {
  const torch::Tensor total = sum(y, prediction);
  return {.value = total / divisor, .total = total};
}

torch::Tensor BatchLossRule::values(const torch::Tensor& y, const torch::Tensor& prediction) const {
  const Values values = values_within(OnePart(), y, prediction);
  if (!values.of_batch) return values.each;
  return values.each.mean().expand({prediction.size(0)});
}

Loss::Loss(std::shared_ptr<const LossRule> rule, LossReduction reduction)
    : rule_(std::move(rule)), reduction_(reduction) {}

Loss::Loss(std::string name, Function values, LossReduction reduction) : reduction_(reduction) {
  if (!values) fail<InvalidArgument>("[losses] ", name, ": the function is empty");
  rule_ = std::make_shared<FunctionLoss>(std::move(name), std::move(values));
}

torch::Tensor Loss::per_example(const torch::Tensor& y, const torch::Tensor& prediction, const torch::Tensor& weight,
                                const torch::Tensor& mask) const {
  require_targets(name(), y, prediction);
  const torch::Tensor values = rule_->values(y, prediction);
  const torch::Tensor factor = masked_weight("[losses] " + name(), weight, mask);
  return mean_of_example(factor.defined() ? values * fit_weight("[losses] " + name(), factor, values) : values);
}

torch::Tensor Loss::sum(const torch::Tensor& y, const torch::Tensor& prediction, const torch::Tensor& weight) const {
  if (weight.defined()) return per_example(y, prediction, weight).sum();
  require_targets(name(), y, prediction);
  return rule_->sum(y, prediction);
}

torch::Tensor Loss::operator()(const torch::Tensor& y, const torch::Tensor& prediction, const torch::Tensor& weight,
                               const torch::Tensor& mask) const {
  const Replica* replica = is_mean(reduction_) ? Replica::current() : nullptr;
  if (replica == nullptr) return reduced(*this, y, prediction, weight, mask, 1.0);
  require_whole_share("the mean of a loss (Loss::share() takes microbatches)");
  return reduced(*this, y, prediction, weight, mask, part_of_step(*replica));
}

LossShare Loss::mean_share(const Replica& replica, const torch::Tensor& y, const torch::Tensor& prediction,
                           const torch::Tensor& weight, const torch::Tensor& mask) const {
  require_reduced(*this);
  require_whole_share("LossAverage::kReplicas");
  const torch::Tensor own = reduced(*this, y, prediction, weight, mask, 1.0);
  return {.value = is_mean(reduction_) ? own / static_cast<double>(replica.num_replicas_in_sync()) : own,
          .total = own * static_cast<double>(prediction.size(0))};
}

LossShare Loss::share(Replica& replica, const torch::Tensor& y, const torch::Tensor& prediction,
                      const torch::Tensor& weight, const torch::Tensor& mask) const {
  require_reduced(*this);
  require_targets(name(), y, prediction);
  const auto examples = static_cast<double>(std::max<int64_t>(1, examples_of_step(replica, prediction)));
  if (is_plain_mean(*rule_, reduction_, weight, mask)) {
    // If others have the rest of the step, their examples count, too.
    return divided_sum(*this, y, prediction, weight, examples / Access::core(replica).placement().step_weight());
  }
  const auto* joint = dynamic_cast<const BatchLossRule*>(rule_.get());
  if (reduction_ != LossReduction::kSum || (joint != nullptr && joint->needs_whole_batch())) {
    require_whole_step(replica, name());
  }
  const PartOfReplica batch(replica);
  const Weighed weighed = weigh(*rule_, reduction_, values_of(*rule_, batch, y, prediction), weight, mask);
  torch::Tensor value = weighed.each.sum();
  if (weighed.of_batch) {
    // All parts have the same values: each takes a part of them, by its examples.
    if (reduction_ != LossReduction::kSum) value = weighed.each.mean();
    value = value * (static_cast<double>(prediction.size(0)) / examples);
  } else if (reduction_ != LossReduction::kSum) {
    const torch::Tensor mine = weighed.divisor.defined()
                                   ? weighed.divisor.detach()
                                   : torch::full({}, weighed.each.numel(), value.options().requires_grad(false));
    value = divided(value, batch.sum(mine));
  }
  return {.value = value, .total = value * examples};
}

torch::Tensor compute_average_loss(const torch::Tensor& per_example_loss, const torch::Tensor& weight) {
  return own_replica("compute_average_loss").global_mean(per_example_loss, weight);
}

torch::Tensor scale_regularization_loss(const torch::Tensor& loss) {
  return loss / static_cast<double>(own_replica("scale_regularization_loss").num_replicas_in_sync());
}

}  // namespace cohort
