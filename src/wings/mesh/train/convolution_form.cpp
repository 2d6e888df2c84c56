#include <ATen/Functions.h>

#include <memory>

#include "base/fail.h"
#include "wings/mesh/train/layer_forms.h"
#include "wings/mesh/train/parts_form.h"

namespace cohort {

namespace {

class ConvolutionForm : public PartsForm {
 public:
  ConvolutionForm(const ConvModule& layer, const Topology& topology, const std::string& axis)
      : PartsForm(topology, axis), layer_(layer) {}

 protected:
  // Fails unless x has so many channels.
  void require_channels(const torch::Tensor& x, int64_t channels) const {
    check_input(layer_.layer_name(), layer_.convolution().type, x, 4, 1, channels);
  }

  const ConvModule& layer_;
};

// The replicas along an axis compute some filters each.
class ConvolutionFilters final : public ConvolutionForm {
 public:
  using ConvolutionForm::ConvolutionForm;

  Parts parts() const override { return layer_.activation().is_elementwise() ? Parts::kMakes : Parts::kNone; }
  torch::Tensor forward(const torch::Tensor& x) override {
    require_channels(x, layer_.convolution().channels);
    return given(
        convolve_images(enter_axis(x, axis()), layer_.weight(), layer_.bias(), layer_.convolution().window, 1));
  }
};

// They take some input channels each, and the products are added up.
class ConvolutionChannels final : public ConvolutionForm {
 public:
  using ConvolutionForm::ConvolutionForm;

  Parts parts() const override { return Parts::kTakes; }
  torch::Tensor forward(const torch::Tensor& x) override {
    require_channels(x, in_parts() ? layer_.weight().size(1) : layer_.convolution().channels);
    const torch::Tensor part = in_parts() ? x : part_along(x, axis(), 1);
    const torch::Tensor sum =
        sum_along(convolve_images(part, layer_.weight(), {}, layer_.convolution().window, 1), axis());
    return layer_.bias().defined() ? sum + layer_.bias().view({-1, 1, 1}) : sum;
  }
};

// They compute some groups each, of their own input channels.
class ConvolutionGroups final : public ConvolutionForm {
 public:
  using ConvolutionForm::ConvolutionForm;

  Parts parts() const override { return layer_.activation().is_elementwise() ? Parts::kPassesChannels : Parts::kNone; }
  torch::Tensor forward(const torch::Tensor& x) override {
    const int64_t groups = layer_.convolution().groups / size();
    require_channels(x, in_parts() ? layer_.weight().size(1) * groups : layer_.convolution().channels);
    const torch::Tensor part = in_parts() ? x : part_along(x, axis(), 1);
    const torch::Tensor y = convolve_images(part, layer_.weight(), layer_.bias(), layer_.convolution().window, groups);
    return in_parts() ? y : gather_along(y, axis(), 1);
  }
};

}  // namespace

void divide_convolution(ConvModule& layer, const ModuleCuts& cuts, const Topology& topology) {
  const std::string& name = layer.layer_name();
  const Convolution& own = layer.convolution();
  const bool grouped = own.groups > 1;
  const auto weight = cuts.find("weight");
  const auto bias = cuts.find("bias");
  const bool filters = weight != cuts.end() && !weight->second[0].empty();
  const bool channels = weight != cuts.end() && !weight->second[1].empty() && !grouped;
  const bool bias_fits = filters && layer.bias().defined() ? bias != cuts.end() && bias->second[0] == weight->second[0]
                                                           : bias == cuts.end();
  if (!(filters || channels) || !bias_fits) {
    fail_layout(name, own.type, cuts,
                grouped ? R"(weight {"model", "", "", ""} and bias {"model"} (groups))"
                        : R"(weight {"model", "", "", ""} and bias {"model"} (filters), or weight )"
                          R"({"", "model", "", ""} alone (input channels))");
  }
  refuse_regularizer(name, own.type, "weight", own.kernel_regularizer);
  if (filters) refuse_regularizer(name, own.type, "bias", own.bias_regularizer);
  const std::string& axis = weight->second[filters ? 0 : 1];
  const int parts = topology.axis(axis).size;
  if (grouped && own.groups % parts != 0) {
    fail<InvalidArgument>("[mesh] layout: ", own.type, " \"", name, "\" has ", own.groups, " groups, which ", parts,
                          " replicas along \"", axis,
                          "\" do not divide; a size of the axis that divides the groups would fit");
  }
  if (grouped) {
    layer.take_form(std::make_unique<ConvolutionGroups>(layer, topology, axis));
  } else if (filters) {
    layer.take_form(std::make_unique<ConvolutionFilters>(layer, topology, axis));
  } else {
    layer.take_form(std::make_unique<ConvolutionChannels>(layer, topology, axis));
  }
}

}  // namespace cohort
