#include <memory>

#include "base/access.h"
#include "base/fail.h"
#include "wings/mesh/train/draw_part.h"
#include "wings/mesh/train/layer_forms.h"

namespace cohort {

namespace {

// The replicas along the axis have some heads each; the output is the sum of what they contribute.
class HeadsAlongAxis final : public AttentionHeads {
 public:
  HeadsAlongAxis(int64_t count, std::string axis) : count_(count), axis_(std::move(axis)) {}

  int64_t count() const override { return count_; }
  torch::Tensor entered(const torch::Tensor& x) const override { return enter_axis(x, axis_); }
  torch::Tensor sum(const torch::Tensor& own) const override { return sum_along(own, axis_); }
  torch::Tensor all_scores(const torch::Tensor& own) const override { return gather_along(own, axis_, 1); }
  torch::Tensor drop_scores(const torch::Tensor& own, double rate) const override {
    return drop_out_part(own, rate, axis_, 1);
  }

 private:
  int64_t count_;
  std::string axis_;
};

}  // namespace

void divide_attention(Attention& attention, const ModuleCuts& cuts, const Topology& topology) {
  AttentionState& layer = *Access::state(attention);
  const MultiHeadAttentionOptions& options = layer.options();
  const std::string& axis = cuts.begin()->second[cuts.begin()->second[0].empty() ? 1 : 0];
  ModuleCuts wanted = {{"output.weight", {"", axis}}};
  for (const std::string part : {"query", "key", "value"}) {
    wanted[part + ".weight"] = {axis, ""};
    if (options.use_bias) wanted[part + ".bias"] = {axis};
  }
  if (cuts != wanted) {
    fail_layout(layer.layer_name(), AttentionState::kType, cuts,
                R"(the weights {"model", ""} and the biases {"model"} of query, key and value, and output.weight )"
                R"({"", "model"}, all together)");
  }
  const int parts = topology.axis(axis).size;
  if (options.num_heads % parts != 0) {
    fail<InvalidArgument>("[mesh] layout: MultiHeadAttention \"", layer.layer_name(), "\" has ", options.num_heads,
                          " heads, which ", parts, " replicas along \"", axis,
                          "\" do not divide; a size of the axis that divides the heads would fit");
  }
  refuse_regularizer(layer.layer_name(), AttentionState::kType, "weights", options.kernel_regularizer);
  refuse_regularizer(layer.layer_name(), AttentionState::kType, "biases", options.bias_regularizer);
  layer.take_heads(std::make_unique<HeadsAlongAxis>(options.num_heads / parts, axis));
}

}  // namespace cohort
