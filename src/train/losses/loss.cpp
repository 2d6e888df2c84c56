#include "cohort/train/losses.h"

#include <ATen/Functions.h>

#include <array>

#include "base/fail.h"
#include "base/named.h"
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

void require_defined(const std::string& name, const torch::Tensor& y, const torch::Tensor& prediction) {
  if (!y.defined()) fail<InvalidArgument>("[losses] ", name, ": the examples have no target y");
  if (!prediction.defined() || prediction.dim() == 0) {
    fail<InvalidArgument>("[losses] ", name, ": the prediction is ", prediction.defined() ? "a scalar" : "undefined",
                          ", wanted [batch, ...]");
  }
  if (y.dim() == 0 || y.size(0) != prediction.size(0)) {
    fail<InvalidArgument>("[losses] ", name, ": the target has shape ", y.sizes(), ", the prediction ",
                          prediction.sizes(), ": the batch sizes differ");
  }
}

struct NamedLoss {
  std::string_view name;
  Loss (*make)();
};

// With Keras' second names.
const std::array kLosses = {
    NamedLoss{"binary_crossentropy", [] { return BinaryCrossentropy(); }},
    NamedLoss{"bce", [] { return BinaryCrossentropy(); }},
    NamedLoss{"categorical_crossentropy", [] { return CategoricalCrossentropy(); }},
    NamedLoss{"huber", [] { return Huber(); }},
    NamedLoss{"huber_loss", [] { return Huber(); }},
    NamedLoss{"mean_absolute_error", [] { return MeanAbsoluteError(); }},
    NamedLoss{"mae", [] { return MeanAbsoluteError(); }},
    NamedLoss{"mean_squared_error", [] { return MeanSquaredError(); }},
    NamedLoss{"mse", [] { return MeanSquaredError(); }},
    NamedLoss{"sparse_categorical_crossentropy", [] { return SparseCategoricalCrossentropy(); }},
};

bool one_dimension_more(const torch::Tensor& longer, const torch::Tensor& shorter) {
  return longer.dim() == shorter.dim() + 1 && longer.size(-1) == 1;
}

}  // namespace

torch::Tensor LossRule::sum(const torch::Tensor& y, const torch::Tensor& prediction) const {
  const torch::Tensor each = values(y, prediction);
  const int64_t count = values_an_example(each);
  return count == 1 ? each.sum() : each.sum() / static_cast<double>(count);
}

Loss::Loss(std::string name, Function values) {
  if (!values) fail<InvalidArgument>("[losses] ", name, ": the function is empty");
  rule_ = std::make_shared<FunctionLoss>(std::move(name), std::move(values));
}

Loss::Loss(const char* name) : Loss(find_named(kLosses, name, "losses", "loss").make()) {}

torch::Tensor Loss::per_example(const torch::Tensor& y, const torch::Tensor& prediction,
                                const torch::Tensor& weight) const {
  require_defined(name(), y, prediction);
  const torch::Tensor values = rule_->values(y, prediction);
  return mean_of_example(weight.defined() ? values * fit_weight("[losses] " + name(), weight, values) : values);
}

torch::Tensor Loss::sum(const torch::Tensor& y, const torch::Tensor& prediction, const torch::Tensor& weight) const {
  if (weight.defined()) return per_example(y, prediction, weight).sum();
  require_defined(name(), y, prediction);
  return rule_->sum(y, prediction);
}

torch::Tensor Loss::operator()(const torch::Tensor& y, const torch::Tensor& prediction,
                               const torch::Tensor& weight) const {
  const torch::Tensor total = sum(y, prediction, weight);
  return total / static_cast<double>(std::max<int64_t>(1, prediction.size(0)));
}

torch::Tensor fit_target(const std::string& speaker, const torch::Tensor& y, const torch::Tensor& prediction) {
  torch::Tensor target = y;
  if (y.sizes() != prediction.sizes()) {
    if (one_dimension_more(prediction, y)) target = y.unsqueeze(-1);
    if (one_dimension_more(y, prediction)) target = y.squeeze(-1);
    if (target.sizes() != prediction.sizes()) {
      fail<InvalidArgument>(speaker, ": the target has shape ", y.sizes(), ", the prediction ", prediction.sizes(),
                            "; wanted the same");
    }
  }
  return target.scalar_type() == prediction.scalar_type() ? target : target.to(prediction.scalar_type());
}

torch::Tensor fit_labels(const std::string& speaker, const torch::Tensor& y, const torch::Tensor& prediction,
                         int64_t axis) {
  if (prediction.dim() < 2 || axis < -prediction.dim() || axis >= prediction.dim()) {
    fail<InvalidArgument>(speaker, ": the prediction has shape ", prediction.sizes(), ", wanted [batch, ..., classes]",
                          axis == -1 ? std::string() : c10::str(" with the classes in dimension ", axis));
  }
  if (y.is_floating_point()) {
    fail<InvalidArgument>(speaker, ": the labels are ", y.scalar_type(), ", wanted integers");
  }
  const int64_t classes_at = axis < 0 ? axis + prediction.dim() : axis;
  const auto fits = [&](const torch::Tensor& labels) {
    if (labels.dim() != prediction.dim() - 1) return false;
    for (int64_t i = 0, j = 0; i < prediction.dim(); ++i) {
      if (i != classes_at && labels.size(j++) != prediction.size(i)) return false;
    }
    return true;
  };
  torch::Tensor labels = y;
  if (!fits(labels) && y.dim() == prediction.dim() && y.size(classes_at) == 1) labels = y.squeeze(classes_at);
  if (!fits(labels)) {
    fail<InvalidArgument>(speaker, ": the labels have shape ", y.sizes(), ", the prediction ", prediction.sizes(),
                          "; wanted the same without the classes");
  }
  return labels.scalar_type() == torch::kLong ? labels : labels.to(torch::kLong);
}

torch::Tensor fit_weight(const std::string& speaker, const torch::Tensor& weight, const torch::Tensor& values) {
  torch::Tensor fitted = weight;
  if (one_dimension_more(weight, values)) fitted = weight.squeeze(-1);
  bool fits = fitted.dim() > 0 && fitted.dim() <= values.dim();
  for (int64_t i = 0; fits && i < fitted.dim(); ++i)
    fits = fitted.size(i) == values.size(i) || (i > 0 && fitted.size(i) == 1);
  if (!fits) {
    fail<InvalidArgument>(speaker, ": the weight has shape ", weight.sizes(), ", wanted one number for each of ",
                          values.sizes(), " or for each example");
  }
  while (fitted.dim() < values.dim()) fitted = fitted.unsqueeze(-1);
  return values.is_floating_point() && fitted.scalar_type() != values.scalar_type() ? fitted.to(values.scalar_type())
                                                                                    : fitted;
}

torch::Tensor mean_of_example(const torch::Tensor& values) {
  return values.dim() > 1 ? values.flatten(1).mean(1) : values;
}

int64_t values_an_example(const torch::Tensor& values) {
  int64_t count = 1;
  for (int64_t i = 1; i < values.dim(); ++i) count *= values.size(i);
  return count;
}

}  // namespace cohort
