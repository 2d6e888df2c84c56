// A decoder of Llama's kind, with the names and the arithmetic of Hugging Face's LlamaForCausalLM.
#include <ATen/Functions.h>
#include <torch/nn/init.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/fail.h"
#include "base/libtorch_compat.h"
#include "cohort/models/text_models.h"
#include "cohort/parallel/stages.h"
#include "cohort/train/layers/remat.h"
#include "device/backend.h"
#include "models/zoo/parts.h"
#include "strategy/divided.h"
#include "strategy/divides_positions.h"
#include "train/layers/leaves_parts.h"
#include "train/layers/support.h"
#include "wings/text/models/decoder_options.h"
#include "wings/text/models/rotations.h"

namespace cohort::models {

namespace {

// A matrix, and perhaps an adapter beside it, with which the matrix stays as it is.
class Projection final : public LayerModule {
 public:
  Projection(int64_t in, int64_t out, double deviation, bool biased, const LoraOptions& lora)
      : weight_(register_parameter("weight", at::empty({out, in}), /*requires_grad=*/lora.rank == 0)) {
    torch::nn::init::normal_(weight_, 0.0, deviation);
    if (biased) bias_ = register_parameter("bias", at::zeros({out}), /*requires_grad=*/lora.rank == 0);
    if (lora.rank == 0) return;
    dropout_ = lora.dropout;
    scale_ = lora.alpha / static_cast<double>(lora.rank);
    const auto add = [&](const char* name, int64_t rows, int64_t columns) {
      return register_module(name, std::make_shared<torch::nn::Module>())
          ->register_parameter("weight", at::zeros({rows, columns}));
    };
    a_ = add("lora_A", lora.rank, in);
    b_ = add("lora_B", out, lora.rank);
    torch::nn::init::kaiming_uniform_(a_, std::sqrt(5.0));  // as peft draws it
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    torch::Tensor y = at::linear(x, weight_, bias_);
    return a_.defined() ? y + at::linear(reduced(x, ""), b_) * scale_ : y;
  }
  // Computes the part of the outputs that this replica has, by columns of the matrices. `entered` is x, whose gradient
  // is that of all parts (enter_axis()).
  torch::Tensor columns(const torch::Tensor& x, const torch::Tensor& entered, const std::string& axis) {
    torch::Tensor y = at::linear(entered, weight_, bias_);
    return a_.defined() ? y + at::linear(enter_axis(reduced(x, ""), axis), b_) * scale_ : y;
  }
  // Computes the outputs of this replica's part of the inputs, by rows, and adds up those of all parts; they are
  // divided as `like`.
  torch::Tensor rows(const torch::Tensor& x, const torch::Tensor& like, const std::string& axis) {
    torch::Tensor y = sum_like(like, at::linear(x, weight_), axis);
    if (bias_.defined()) y = y + bias_;
    return a_.defined() ? y + at::linear(sum_like(like, reduced(x, axis), axis), b_) * scale_ : y;
  }

  // Adds the cuts of the parameters of this projection, which has the name, by columns or by rows.
  void add_cuts(ParameterCuts& cuts, const std::string& name, bool by_columns) const {
    const ParameterAxes outputs = {"*", ""}, inputs = {"", "*"};
    cuts[name + ".weight"] = by_columns ? outputs : inputs;
    if (bias_.defined() && by_columns) cuts[name + ".bias"] = {"*"};
    if (a_.defined()) cuts[name + (by_columns ? ".lora_B.weight" : ".lora_A.weight")] = by_columns ? outputs : inputs;
  }

 private:
  // Returns the adapter's input times A; with an axis the input is a part of the whole.
  torch::Tensor reduced(const torch::Tensor& x, const std::string& axis) {
    return at::linear(is_training() && dropout_ > 0.0 ? drop_part(x, dropout_, axis, 2) : x, a_);
  }

  torch::Tensor weight_, bias_, a_, b_;
  double dropout_ = 0.0;
  double scale_ = 0.0;
};

// Makes the projections of one module.
class Projections {
 public:
  Projections(const DecoderOptions& options, torch::nn::Module& module) : options_(options), module_(module) {}

  std::shared_ptr<Projection> add(const char* name, int64_t in, int64_t out, bool biased) const {
    const auto& targets = options_.lora.target_modules;
    const bool adapts = std::find(targets.begin(), targets.end(), name) != targets.end();
    const LoraOptions lora = adapts ? options_.lora : LoraOptions{};
    auto made = std::make_shared<Projection>(in, out, options_.initializer_range, biased, lora);
    if (options_.lora.rank > 0 && !adapts) {
      for (torch::Tensor& each : made->parameters(/*recurse=*/false)) each.set_requires_grad(false);
    }
    return module_.register_module(name, std::move(made));
  }

 private:
  const DecoderOptions& options_;
  torch::nn::Module& module_;
};

// Root mean square norm: B. Zhang and R. Sennrich (2019).
class RmsNorm final : public LayerModule {
 public:
  explicit RmsNorm(const DecoderOptions& options)
      : weight_(register_parameter("weight", at::ones({options.hidden_size}),
                                   /*requires_grad=*/options.lora.rank == 0)),
        epsilon_(options.norm_epsilon) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    return weight_ * (x * at::rsqrt((x * x).mean(-1, /*keepdim=*/true) + epsilon_));
  }

 private:
  torch::Tensor weight_;
  double epsilon_;
};

// query, key and value: [examples, heads, steps, size].
torch::Tensor causal_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(query.size(3)));
  if (const DividedTensor* const divided = DividedTensor::of(query)) {
    return divided->attend(
        {.query = query, .key = key, .value = value, .who = "decoder's attention", .scale = scale, .causal = true});
  }
  if (!backend_of(query.device()).records()) {
    torch::Tensor fused = compat::fused_attention(query, key, value, {}, /*causal=*/true);
    if (fused.defined()) return fused;
  }
  const auto options = at::TensorOptions(torch::kLong).device(query.device());
  const torch::Tensor steps = at::arange(query.size(2), options);
  const torch::Tensor later = steps.unsqueeze(1).lt(steps);
  const torch::Tensor scores = at::matmul(query * scale, key.transpose(2, 3));
  const double unseen = -std::numeric_limits<double>::infinity();
  return at::matmul(at::softmax(scores.masked_fill(later, unseen), -1), value);
}

constexpr const char* kDecoder = "decoder";

class DecoderAttention final : public torch::nn::Module, public DividedModule {
 public:
  explicit DecoderAttention(const DecoderOptions& options)
      : heads_(options.num_heads), shared_(options.num_kv_heads), size_(options.head_dim) {
    const Projections projections(options, *this);
    const bool biased = options.qkv_bias || options.attention_bias;
    query_ = projections.add("q_proj", options.hidden_size, heads_ * size_, biased);
    key_ = projections.add("k_proj", options.hidden_size, shared_ * size_, biased);
    value_ = projections.add("v_proj", options.hidden_size, shared_ * size_, biased);
    output_ = projections.add("o_proj", heads_ * size_, options.hidden_size, options.attention_bias);
  }

  torch::Tensor forward(const torch::Tensor& x, const Rotations& rotations) {
    const torch::Tensor entered = axis_.empty() ? x : enter_axis(x, axis_);
    const auto project = [&](Projection& projection, int64_t heads) {
      return by_heads(axis_.empty() ? projection.forward(x) : projection.columns(x, entered, axis_), heads);
    };
    const torch::Tensor query = rotations(project(*query_, heads_));
    const torch::Tensor key = for_each_query(rotations(project(*key_, shared_)));
    const torch::Tensor value = for_each_query(project(*value_, shared_));
    const torch::Tensor mixed =
        causal_attention(query, key, value).transpose(1, 2).reshape({x.size(0), x.size(1), heads_ * size_});
    return axis_.empty() ? output_->forward(mixed) : output_->rows(mixed, x, axis_);
  }

  // The replicas along the axis have some heads each.
  void divide(const ParameterCuts& cuts, const Topology& topology) override {
    ParameterCuts wanted;
    query_->add_cuts(wanted, "q_proj", true);
    key_->add_cuts(wanted, "k_proj", true);
    value_->add_cuts(wanted, "v_proj", true);
    output_->add_cuts(wanted, "o_proj", false);
    axis_ = require_cuts(kDecoder, cuts, wanted);
    require_heads(kDecoder, "num_heads", heads_, axis_, topology);
    require_heads(kDecoder, "num_kv_heads", shared_, axis_, topology);
    heads_ /= topology.axis(axis_).size;
    shared_ /= topology.axis(axis_).size;
  }

 private:
  torch::Tensor by_heads(const torch::Tensor& x, int64_t heads) const {
    return x.view({x.size(0), x.size(1), heads, size_}).transpose(1, 2);
  }
  // Repeats the heads that several queries share.
  torch::Tensor for_each_query(const torch::Tensor& x) const {
    if (shared_ == heads_) return x;
    const std::vector<int64_t> repeated = {x.size(0), shared_, heads_ / shared_, x.size(2), size_};
    return x.unsqueeze(2).expand(repeated).reshape({x.size(0), heads_, x.size(2), size_});
  }

  int64_t heads_;   // of this replica
  int64_t shared_;  // those of keys and values
  int64_t size_;
  std::string axis_;  // along which the heads are divided; empty: it has all of them
  std::shared_ptr<Projection> query_, key_, value_, output_;
};

// Gated dense layers with silu ("SwiGLU", N. Shazeer, 2020).
class GatedDense final : public LayerModule, public DividedModule {
 public:
  explicit GatedDense(const DecoderOptions& options) {
    const Projections projections(options, *this);
    gate_ = projections.add("gate_proj", options.hidden_size, options.intermediate_size, options.mlp_bias);
    up_ = projections.add("up_proj", options.hidden_size, options.intermediate_size, options.mlp_bias);
    down_ = projections.add("down_proj", options.intermediate_size, options.hidden_size, options.mlp_bias);
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    if (axis_.empty()) return down_->forward(at::silu(gate_->forward(x)) * up_->forward(x));
    const torch::Tensor entered = enter_axis(x, axis_);
    return down_->rows(at::silu(gate_->columns(x, entered, axis_)) * up_->columns(x, entered, axis_), x, axis_);
  }

  // The replicas along the axis have some units of the hidden layer each.
  void divide(const ParameterCuts& cuts, const Topology& /*topology*/) override {
    ParameterCuts wanted;
    gate_->add_cuts(wanted, "gate_proj", true);
    up_->add_cuts(wanted, "up_proj", true);
    down_->add_cuts(wanted, "down_proj", false);
    axis_ = require_cuts(kDecoder, cuts, wanted);
  }

 private:
  std::string axis_;  // along which the hidden layer is divided; empty: it is whole
  std::shared_ptr<Projection> gate_, up_, down_;
};

class DecoderBlock final : public torch::nn::Module {
 public:
  explicit DecoderBlock(const DecoderOptions& options) : dropout_(options.dropout) {
    attention_ = register_module("self_attn", std::make_shared<DecoderAttention>(options));
    dense_ = register_module("mlp", std::make_shared<GatedDense>(options));
    attention_norm_ = register_module("input_layernorm", std::make_shared<RmsNorm>(options));
    dense_norm_ = register_module("post_attention_layernorm", std::make_shared<RmsNorm>(options));
  }

  torch::Tensor forward(const torch::Tensor& x, const Rotations& rotations) {
    const torch::Tensor y = x + dropped(attention_->forward(attention_norm_->forward(x), rotations));
    return y + dropped(dense_->forward(dense_norm_->forward(y)));
  }

 private:
  torch::Tensor dropped(const torch::Tensor& x) const {
    return is_training() && dropout_ > 0.0 ? drop(x, dropout_, x.sizes()) : x;
  }

  double dropout_;
  std::shared_ptr<DecoderAttention> attention_;
  std::shared_ptr<GatedDense> dense_;
  std::shared_ptr<RmsNorm> attention_norm_, dense_norm_;
};

class Decoder final : public LayerModule, public DividedModule, public DividesPositions, public LeavesParts {
 public:
  explicit Decoder(const DecoderOptions& options) : options_(options) {
    const bool learns = options.lora.rank == 0;
    const auto model = register_module("model", std::make_shared<torch::nn::Module>());
    const std::vector<int64_t> shape = {options.vocab_size, options.hidden_size};
    embeddings_ = model->register_module("embed_tokens", std::make_shared<torch::nn::Module>())
                      ->register_parameter("weight", at::empty(shape), learns);
    torch::nn::init::normal_(embeddings_, 0.0, options.initializer_range);
    const auto layers = model->register_module("layers", std::make_shared<torch::nn::Module>());
    for (int64_t i = 0; i < options.num_layers; ++i) {
      blocks_.push_back(layers->register_module(std::to_string(i), std::make_shared<DecoderBlock>(options)));
    }
    norm_ = model->register_module("norm", std::make_shared<RmsNorm>(options));
    if (options.tie_word_embeddings) return;
    head_ = register_module("lm_head", std::make_shared<torch::nn::Module>())
                ->register_parameter("weight", at::empty(shape), learns);
    torch::nn::init::normal_(head_, 0.0, options.initializer_range);
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    if (x.dim() != 2 || !at::isIntegralType(x.scalar_type(), /*includeBool=*/false)) {
      fail<InvalidArgument>("[models] decoder: the input is ", x.scalar_type(), " ", x.sizes(),
                            ", wanted tokens of an integer dtype, [examples, steps]");
    }
    const Rotations rotations(x.size(1), options_, embeddings_.options());
    torch::Tensor y = in_positions(look_up(x.to(torch::kLong)), positions_axis_);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const auto& block = blocks_[i];
      if (i > 0) y = stage_place(y, "layers." + std::to_string(i));
      const auto forward = [block, rotations](const torch::Tensor& input) { return block->forward(input, rotations); };
      y = options_.remat ? remat(block, forward, y) : forward(y);
    }
    return logits(norm_->forward(y));
  }

  // The replicas along the axis have some words each, of the embeddings and of the head.
  void divide(const ParameterCuts& cuts, const Topology& /*topology*/) override {
    ParameterCuts wanted = {{"model.embed_tokens.weight", {"*", ""}}};
    if (head_.defined()) wanted["lm_head.weight"] = {"*", ""};
    axis_ = require_cuts(kDecoder, cuts, wanted);
  }
  void leave_parts() override { leaves_parts_ = true; }
  void divide_positions(const std::string& axis) override { positions_axis_ = axis; }

 private:
  torch::Tensor look_up(const torch::Tensor& x) const {
    return axis_.empty() ? at::embedding(embeddings_, x)
                         : look_up_in_parts("[models] decoder", embeddings_, x, options_.vocab_size, axis_);
  }
  torch::Tensor logits(const torch::Tensor& y) const {
    const torch::Tensor& words = head_.defined() ? head_ : embeddings_;
    if (axis_.empty()) return at::linear(whole_of(y), words);
    const torch::Tensor part = at::linear(enter_axis(y, axis_), words);
    return leaves_parts_ ? parts_along(part, axis_, -1) : gather_along(part, axis_, -1);
  }

  DecoderOptions options_;
  std::string axis_;            // along which the vocabulary is divided; empty: it is whole
  std::string positions_axis_;  // along which the positions are; empty: they are whole
  bool leaves_parts_ = false;
  torch::Tensor embeddings_, head_;
  std::vector<std::shared_ptr<DecoderBlock>> blocks_;
  std::shared_ptr<RmsNorm> norm_;
};

}  // namespace

std::shared_ptr<LayerModule> decoder(const DecoderOptions& options) {
  return std::make_shared<Decoder>(checked(options));
}

}  // namespace cohort::models
