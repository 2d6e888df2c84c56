#include <ATen/Functions.h>

#include <memory>

#include "base/fail.h"
#include "train/layers/support.h"
#include "wings/mesh/train/layer_forms.h"
#include "wings/mesh/train/parts_form.h"

namespace cohort {

namespace {

// The replicas along the axis normalize some channels each. The running statistics, which are buffers, are whole.
class BatchNormForm final : public PartsForm {
 public:
  BatchNormForm(BatchNormModule& layer, const Topology& topology, const std::string& axis)
      : PartsForm(topology, axis), layer_(layer) {}

  Parts parts() const override { return Parts::kPassesChannels; }

  torch::Tensor forward(const torch::Tensor& x) override {
    const int64_t channels = in_parts() ? layer_.channels() / size() : layer_.channels();
    check_input(layer_.layer_name(), BatchNormModule::kType, x, layer_.rank(), layer_.dim(), channels);
    const BatchNormModule::Running own = own_running();
    const torch::Tensor y = layer_.compute(in_parts() ? x : part_along(x, axis(), 1), own);
    if (layer_.learns()) gather(own);
    return in_parts() ? y : gather_along(y, axis(), 1);
  }

 private:
  // Returns copies: what is gathered later must not change what the backward pass holds on to.
  BatchNormModule::Running own_running() const {
    const torch::NoGradGuard no_grad;
    const auto [mean, var] = layer_.running();
    return {part_along(mean, axis(), 0).clone(), part_along(var, axis(), 0).clone()};
  }
  void gather(const BatchNormModule::Running& own) const {
    const torch::NoGradGuard no_grad;
    const auto [mean, var] = layer_.running();
    const torch::Tensor both = gather_along(at::stack({own.mean, own.var}), axis(), 1);
    mean.copy_(both[0]);
    var.copy_(both[1]);
  }

  BatchNormModule& layer_;
};

}  // namespace

void divide_batch_norm(BatchNormModule& layer, const ModuleCuts& cuts, const Topology& topology) {
  if (layer.dim() != 1) {
    fail<InvalidArgument>("[mesh] layout: BatchNormalization \"", layer.layer_name(),
                          "\" has its channels in dimension ", layer.dim(),
                          "; it can be cut where they are in dimension 1");
  }
  const std::string& axis = cuts.begin()->second[0];
  ModuleCuts wanted;
  if (layer.weight().defined()) wanted["weight"] = {axis};
  if (layer.bias().defined()) wanted["bias"] = {axis};
  if (cuts != wanted) {
    fail_layout(layer.layer_name(), BatchNormModule::kType, cuts,
                R"(weight {"model"} and bias {"model"}, as many as it has)");
  }
  layer.take_form(std::make_unique<BatchNormForm>(layer, topology, axis));
}

}  // namespace cohort
