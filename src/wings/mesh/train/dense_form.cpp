#include <ATen/Functions.h>

#include <memory>

#include "train/layers/support.h"
#include "wings/mesh/train/layer_forms.h"
#include "wings/mesh/train/parts_form.h"

namespace cohort {

namespace {

// The replicas along an axis compute some units each.
class DenseColumns final : public PartsForm {
 public:
  DenseColumns(const DenseModule& layer, const Topology& topology, const std::string& axis)
      : PartsForm(topology, axis, layer.parts().last_dim), layer_(layer.parts()) {}

  Parts parts() const override { return layer_.activation.is_elementwise() ? Parts::kMakes : Parts::kNone; }

  // The units stay apart where the next layer takes them so.
  torch::Tensor forward(const torch::Tensor& x) override {
    check_input(layer_.name, DenseModule::kType, x, 0, -1, layer_.inputs);
    const torch::Tensor units = given(at::linear(enter_axis(x, axis()), layer_.weight, layer_.bias));
    return in_parts() ? layer_.activation.overwrite(units) : layer_.activation(units);
  }

 private:
  const DenseModule::Parts& layer_;
};

// Each takes some inputs, and the products are added up.
class DenseRows final : public PartsForm {
 public:
  DenseRows(const DenseModule& layer, const Topology& topology, const std::string& axis)
      : PartsForm(topology, axis, layer.parts().last_dim), layer_(layer.parts()) {}

  Parts parts() const override { return Parts::kTakes; }

  torch::Tensor forward(const torch::Tensor& x) override {
    check_input(layer_.name, DenseModule::kType, x, 0, -1, in_parts() ? layer_.weight.size(1) : layer_.inputs);
    torch::Tensor sum = sum_along(at::linear(in_parts() ? x : part_along(x, axis(), -1), layer_.weight), axis());
    if (layer_.bias.defined()) sum = sum + layer_.bias;
    return layer_.activation(sum);
  }

 private:
  const DenseModule::Parts& layer_;
};

}  // namespace

void divide_dense(DenseModule& layer, const ModuleCuts& cuts, const Topology& topology) {
  const DenseModule::Parts& own = layer.parts();
  const auto weight = cuts.find("weight");
  const auto bias = cuts.find("bias");
  const bool columns = weight != cuts.end() && !weight->second[0].empty();
  const bool fits = weight != cuts.end() &&
                    (columns ? !own.bias.defined() || (bias != cuts.end() && bias->second[0] == weight->second[0])
                             : bias == cuts.end());
  if (!fits) {
    fail_layout(own.name, DenseModule::kType, cuts,
                R"(weight {"model", ""} and bias {"model"} (columns), or weight {"", "model"} alone (rows))");
  }
  refuse_regularizer(own.name, DenseModule::kType, "weight", own.kernel_regularizer);
  if (columns) refuse_regularizer(own.name, DenseModule::kType, "bias", own.bias_regularizer);
  const std::string& axis = weight->second[columns ? 0 : 1];
  if (columns) {
    layer.take_form(std::make_unique<DenseColumns>(layer, topology, axis));
  } else {
    layer.take_form(std::make_unique<DenseRows>(layer, topology, axis));
  }
}

}  // namespace cohort
