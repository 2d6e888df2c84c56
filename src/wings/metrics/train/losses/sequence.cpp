#include <ATen/Functions.h>

#include "base/fail.h"
#include "cohort/train/more_losses.h"
#include "train/losses/support.h"

namespace cohort {

namespace {

class CtcRule final : public LossRule {
 public:
  explicit CtcRule(std::string name) : name_(std::move(name)), speaker_("[losses] " + name_) {}

  const std::string& name() const override { return name_; }
  torch::Tensor values(const torch::Tensor& y, const torch::Tensor& prediction) const override {
    if (prediction.dim() != 3 || y.dim() != 2 || y.is_floating_point()) {
      fail<InvalidArgument>(speaker_, ": the prediction has shape ", prediction.sizes(), ", the target ",
                            y.scalar_type(), y.sizes(), "; wanted [batch, time, classes] and integers [batch, length]");
    }
    if (prediction.size(0) == 0) return prediction.sum({1, 2});
    const torch::Tensor times = torch::full({prediction.size(0)}, prediction.size(1), torch::kLong);
    const torch::Tensor lengths = y.ne(0).sum(1).cpu();
    const torch::Tensor logs = at::log_softmax(prediction, -1).transpose(0, 1);
    return at::ctc_loss(logs, y.to(torch::kLong), times, lengths, /*blank=*/0, at::Reduction::None);
  }

 private:
  std::string name_;
  std::string speaker_;
};

}  // namespace

Loss CTC(const CtcOptions& options) {
  return Loss(std::make_shared<CtcRule>(options.name), options.reduction);
}

}  // namespace cohort
