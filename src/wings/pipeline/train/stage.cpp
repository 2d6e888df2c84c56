#include "wings/pipeline/train/stage.h"

#include "cohort/parallel/stages.h"
#include "cohort/train/layers/stage.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

class StageKind final : public LayerKind {
 public:
  std::string_view type() const override { return "Stage"; }
  std::string_view base_name() const override { return "stage"; }
  Shape output_shape(const BuildContext& context) const override { return context.input; }
  std::shared_ptr<LayerModule> build(const BuildContext& /*context*/) const override {
    return std::make_shared<StageModule>();
  }
};

}  // namespace

torch::Tensor StageModule::forward(const torch::Tensor& x) {
  return next_stage(x);
}

Layer Stage() {
  return Layer(std::make_shared<StageKind>());
}

}  // namespace cohort
