// DotProductAttention and AdditiveAttention: one module, whose scores are made in three ways.
#include <ATen/Functions.h>

#include "cohort/train/layers/dot_attention.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

enum class ScoreRule { kDot, kConcat, kAdditive };

// The options that both layers have.
struct AttentionPlan {
  ScoreRule scores = ScoreRule::kDot;
  bool use_scale = false;
  double dropout = 0.0;
  bool use_causal_mask = false;
  bool return_attention_scores = false;

  std::string_view type() const { return scores == ScoreRule::kAdditive ? "AdditiveAttention" : "DotProductAttention"; }
};

class DotAttentionModule final : public GraphLayerModule {
 public:
  DotAttentionModule(const AttentionPlan& plan, const BuildContext& context, std::vector<Shape> inputs)
      : plan_(plan), name_(context.name), inputs_(std::move(inputs)) {
    const int64_t size = inputs_[0][1];
    if (plan_.use_scale) {
      const bool additive = plan_.scores == ScoreRule::kAdditive;
      scale_ = register_parameter("scale", at::ones(additive ? Shape{size} : Shape{}, context.dtype));
      if (additive) Initializer(Initializer::kGlorotUniform).fill(scale_, Fans::of_kernel({size}));
    }
    if (plan_.scores == ScoreRule::kConcat) {
      score_weight_ = register_parameter("concat_score_weight", at::ones({}, context.dtype));
    }
  }

  LayerValues forward_values(const LayerValues& inputs) override {
    check(inputs.tensors);
    const torch::Tensor& query = inputs.tensors[0];
    const torch::Tensor& value = inputs.tensors[1];
    torch::Tensor scores = scores_of(query, inputs.tensors.back());
    const torch::Tensor counts = counted(scores, mask(inputs, 1));
    if (counts.defined()) {
      const double much = scores.scalar_type() == torch::kHalf ? 65504.0 : 1e9;  // Keras' numbers
      scores = scores - counts.logical_not().to(scores.scalar_type()) * much;
    }
    torch::Tensor weights = at::softmax(scores, -1);
    if (is_training() && plan_.dropout > 0.0) weights = drop_out(weights, plan_.dropout);
    torch::Tensor result = at::matmul(weights, value);
    const torch::Tensor asked = mask(inputs, 0);
    if (asked.defined()) result = result * asked.unsqueeze(-1).to(result.scalar_type());
    if (plan_.return_attention_scores) return {.tensors = {result, weights}, .masks = {asked, {}}};
    return {.tensors = {result}, .masks = {asked}};
  }

 private:
  static torch::Tensor mask(const LayerValues& inputs, std::size_t input) {
    return input < inputs.masks.size() ? inputs.masks[input] : torch::Tensor();
  }

  torch::Tensor scores_of(const torch::Tensor& query, const torch::Tensor& key) const {
    if (plan_.scores == ScoreRule::kDot) {
      const torch::Tensor scores = at::matmul(query, key.transpose(1, 2));
      return scale_.defined() ? scores * scale_ : scores;
    }
    const torch::Tensor sums = query.unsqueeze(2) + key.unsqueeze(1);  // [batch, queries, values, size]
    if (plan_.scores == ScoreRule::kAdditive) {
      const torch::Tensor each = at::tanh(sums);
      return (scale_.defined() ? each * scale_ : each).sum(-1);
    }
    return at::tanh(scale_.defined() ? sums * scale_ : sums).sum(-1) * score_weight_;
  }

  // Returns which values count for which query, of a shape that broadcasts to the scores; undefined for all.
  torch::Tensor counted(const torch::Tensor& scores, const torch::Tensor& value_mask) const {
    torch::Tensor counts = value_mask.defined() ? value_mask.unsqueeze(1) : torch::Tensor();
    if (!plan_.use_causal_mask) return counts;
    const torch::Tensor earlier =
        at::ones({scores.size(1), scores.size(2)}, scores.options().dtype(torch::kBool).requires_grad(false)).tril();
    return counts.defined() ? counts.logical_and(earlier) : earlier;
  }

  void check(const std::vector<torch::Tensor>& tensors) const {
    if (tensors.size() != inputs_.size()) {
      fail<InvalidArgument>("[layers] ", name_, " (", plan_.type(), "): got ", tensors.size(), " inputs, wanted ",
                            inputs_.size(), " as it was built for");
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const torch::Tensor& x = tensors[i];
      if (x.defined() && x.dim() == 3 && x.size(2) == inputs_[i][1] && x.is_floating_point()) continue;
      fail_called(name_, plan_.type(), x, c10::str("floating point [batch, steps, ", inputs_[i][1], "] as input ", i));
    }
    if (tensors.back().size(1) == tensors[1].size(1)) return;
    fail_called(name_, plan_.type(), tensors.back(), c10::str("a key for each of the ", tensors[1].size(1), " values"));
  }

  AttentionPlan plan_;
  std::string name_;
  std::vector<Shape> inputs_;
  torch::Tensor scale_, score_weight_;
};

class DotAttentionKind final : public GraphLayerKind {
 public:
  explicit DotAttentionKind(const AttentionPlan& plan) : plan_(plan) {
    if (!(plan_.dropout >= 0.0 && plan_.dropout < 1.0)) {
      fail_option(type(), "dropout must be in [0, 1), got ", plan_.dropout);
    }
  }
  std::string_view type() const override { return plan_.type(); }
  std::string_view base_name() const override {
    return plan_.scores == ScoreRule::kAdditive ? "additive_attention" : "dot_product_attention";
  }

  std::vector<Shape> output_shapes(const BuildContext& context, const std::vector<Shape>& inputs) const override {
    const auto came = [&] {
      std::string text;
      for (const Shape& shape : inputs) text += (text.empty() ? "" : ", ") + to_text(shape);
      return text + " an example";
    };
    bool fits = inputs.size() == 2 || inputs.size() == 3;
    for (std::size_t i = 0; fits && i < inputs.size(); ++i) fits = inputs[i].size() == 2 && inputs[i][1] > 0;
    // The keys are the last input, which may be the values.
    fits = fits && inputs[0][1] == inputs.back()[1];
    fits = fits && (inputs.back()[0] == inputs[1][0] || inputs.back()[0] < 0 || inputs[1][0] < 0);
    if (!fits) {
      fail_input(context.name, type(), came(),
                 "queries [queries, size], values [values, value_size] and, if value_size is another size, keys "
                 "[values, size]");
    }
    std::vector<Shape> outputs = {{inputs[0][0], inputs[1][1]}};
    if (plan_.return_attention_scores) outputs.push_back({inputs[0][0], inputs[1][0]});
    return outputs;
  }
  std::shared_ptr<GraphLayerModule> build_for(const BuildContext& context,
                                              const std::vector<Shape>& inputs) const override {
    return std::make_shared<DotAttentionModule>(plan_, context, inputs);
  }

 private:
  AttentionPlan plan_;
};

template <typename Options>
Layer make_attention(ScoreRule scores, const Options& options) {
  const AttentionPlan plan{.scores = scores,
                           .use_scale = options.use_scale,
                           .dropout = options.dropout,
                           .use_causal_mask = options.use_causal_mask,
                           .return_attention_scores = options.return_attention_scores};
  return Layer(made_with<DotAttentionKind>(options, plan), options.name, options.trainable);
}

}  // namespace

Layer DotProductAttention(const DotProductAttentionOptions& options) {
  const bool dot = options.score_mode == DotProductAttentionOptions::ScoreMode::kDot;
  return make_attention(dot ? ScoreRule::kDot : ScoreRule::kConcat, options);
}

Layer AdditiveAttention(const AdditiveAttentionOptions& options) {
  return make_attention(ScoreRule::kAdditive, options);
}

}  // namespace cohort
