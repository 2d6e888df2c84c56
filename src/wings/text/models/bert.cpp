// BERT with the names and the arithmetic of Hugging Face's BertForPreTraining: norms come after what is added, the
// matrix of the words' embeddings gives the logits, and only tokens at masked positions get logits.
#include <ATen/Functions.h>
#include <ATen/TracerMode.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "cohort/models/text_models.h"
#include "cohort/parallel/stages.h"
#include "cohort/train/layers/remat.h"
#include "models/zoo/parts.h"
#include "ops/dense_product.h"
#include "strategy/divided.h"
#include "strategy/divides_positions.h"
#include "train/layers/fused_attention.h"
#include "train/layers/leaves_parts.h"
#include "train/layers/support.h"

namespace cohort::models {

namespace {

constexpr const char* kBert = "bert";
constexpr double kUnseen = -1e30;     // stands in for scores of padding
constexpr double kUnseenHalf = -6e4;  // the same in float16

torch::nn::Linear linear(int64_t in, int64_t out, double deviation) {
  torch::nn::Linear made(in, out);
  torch::nn::init::normal_(made->weight, 0.0, deviation);
  torch::nn::init::zeros_(made->bias);
  return made;
}

torch::nn::LayerNorm layer_norm(const BertOptions& options) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.hidden_size}).eps(options.norm_epsilon));
}

// Returns what a part of a model that learns drops of x.
torch::Tensor dropped(const torch::nn::Module& module, const torch::Tensor& x, double probability) {
  return module.is_training() && probability > 0.0 ? drop(x, probability, x.sizes()) : x;
}

class BertAttention final : public torch::nn::Module, public DividedModule {
 public:
  explicit BertAttention(const BertOptions& options)
      : heads_(options.num_heads),
        size_(options.hidden_size / options.num_heads),
        dropout_(options.dropout),
        attention_dropout_(options.attention_dropout) {
    const auto self = register_module("self", std::make_shared<torch::nn::Module>());
    const auto project = [&](const char* name) {
      return self->register_module(name, linear(options.hidden_size, options.hidden_size, options.initializer_range));
    };
    query_ = project("query");
    key_ = project("key");
    value_ = project("value");
    const auto output = register_module("output", std::make_shared<torch::nn::Module>());
    output_ =
        output->register_module("dense", linear(options.hidden_size, options.hidden_size, options.initializer_range));
    norm_ = output->register_module("LayerNorm", layer_norm(options));
  }

  // x: [examples, steps, size]; padding: booleans [examples, 1, 1, steps].
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& padding) {
    const torch::Tensor entered = axis_.empty() ? x : enter_axis(x, axis_);
    const auto by_heads = [&](torch::nn::Linear& projection) {
      return affine(projection, entered).view({x.size(0), x.size(1), heads_, size_}).transpose(1, 2);
    };
    const torch::Tensor query = by_heads(query_);
    const torch::Tensor key = by_heads(key_);
    torch::Tensor mixed;
    const bool drops = is_training() && attention_dropout_ > 0.0;
    const double unseen = query.scalar_type() == torch::kHalf ? kUnseenHalf : kUnseen;
    if (!drops && fuses_attention(query)) {
      mixed = fused_attention(query, key, by_heads(value_), padding.to(query.scalar_type()) * unseen);
    } else {
      const torch::Tensor scores =
          at::matmul(query * (1.0 / std::sqrt(static_cast<double>(size_))), key.transpose(2, 3));
      torch::Tensor weights = at::softmax(scores.masked_fill(padding, unseen), -1);
      if (drops) weights = drop_part(weights, attention_dropout_, axis_, 1);
      mixed = at::matmul(weights, by_heads(value_));
    }
    mixed = mixed.masked_fill(blind_queries(padding), 0.0);
    mixed = mixed.transpose(1, 2).reshape({x.size(0), x.size(1), heads_ * size_});
    const torch::Tensor y =
        axis_.empty() ? affine(output_, mixed) : sum_like(x, at::linear(mixed, output_->weight), axis_) + output_->bias;
    return norm_->forward(x + dropped(*this, y, dropout_));
  }

  // The replicas along the axis have some heads each.
  void divide(const ParameterCuts& cuts, const Topology& topology) override {
    ParameterCuts wanted = {{"output.dense.weight", {"", "*"}}};
    for (const std::string name : {"query", "key", "value"}) {
      wanted["self." + name + ".weight"] = {"*", ""};
      wanted["self." + name + ".bias"] = {"*"};
    }
    axis_ = require_cuts(kBert, cuts, wanted);
    require_heads(kBert, "num_heads", heads_, axis_, topology);
    heads_ /= topology.axis(axis_).size;
  }

 private:
  int64_t heads_;  // of this replica
  int64_t size_;
  double dropout_, attention_dropout_;
  std::string axis_;  // along which the heads are divided; empty: it has all of them
  torch::nn::Linear query_{nullptr}, key_{nullptr}, value_{nullptr}, output_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
};

class BertBlock final : public torch::nn::Module, public DividedModule {
 public:
  explicit BertBlock(const BertOptions& options) : activation_(options.activation), dropout_(options.dropout) {
    attention_ = register_module("attention", std::make_shared<BertAttention>(options));
    inner_ = register_module("intermediate", std::make_shared<torch::nn::Module>())
                 ->register_module("dense",
                                   linear(options.hidden_size, options.intermediate_size, options.initializer_range));
    const auto output = register_module("output", std::make_shared<torch::nn::Module>());
    outer_ = output->register_module("dense",
                                     linear(options.intermediate_size, options.hidden_size, options.initializer_range));
    norm_ = output->register_module("LayerNorm", layer_norm(options));
  }

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& padding) {
    const torch::Tensor y = attention_->forward(x, padding);
    return norm_->forward(y + dropped(*this, dense(y), dropout_));
  }

  // The replicas along the axis have some units of the hidden layer each.
  void divide(const ParameterCuts& cuts, const Topology& /*topology*/) override {
    if (!activation_.is_elementwise()) {
      fail<InvalidArgument>(
          "[models] bert: the activation ", activation_.name(),
          " needs the whole hidden layer, which the layout divides; wanted one of the library's that is elementwise");
    }
    axis_ = require_cuts(kBert, cuts,
                         {{"intermediate.dense.weight", {"*", ""}},
                          {"intermediate.dense.bias", {"*"}},
                          {"output.dense.weight", {"", "*"}}});
  }

 private:
  torch::Tensor dense(const torch::Tensor& x) {
    const torch::Tensor inner = activation_(affine(inner_, axis_.empty() ? x : enter_axis(x, axis_)));
    return axis_.empty() ? affine(outer_, inner) : sum_like(x, at::linear(inner, outer_->weight), axis_) + outer_->bias;
  }

  Activation activation_;
  double dropout_;
  std::string axis_;  // along which the hidden layer is divided; empty: it is whole
  std::shared_ptr<BertAttention> attention_;
  torch::nn::Linear inner_{nullptr}, outer_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
};

class BertEmbeddings final : public torch::nn::Module {
 public:
  explicit BertEmbeddings(const BertOptions& options) : vocabulary_(options.vocab_size), dropout_(options.dropout) {
    const auto add = [&](const char* name, int64_t rows) {
      torch::Tensor weight = register_module(name, std::make_shared<torch::nn::Module>())
                                 ->register_parameter("weight", at::empty({rows, options.hidden_size}));
      return torch::nn::init::normal_(weight, 0.0, options.initializer_range);
    };
    words_ = add("word_embeddings", options.vocab_size);
    positions_ = add("position_embeddings", options.max_positions);
    types_ = add("token_type_embeddings", options.type_vocab_size);
    norm_ = register_module("LayerNorm", layer_norm(options));
  }

  torch::Tensor forward(const torch::Tensor& words, const torch::Tensor& types) {
    const torch::Tensor own = axis_.empty() ? at::embedding(words_, words)
                                            : look_up_in_parts("[models] bert", words_, words, vocabulary_, axis_);
    const torch::Tensor sum = own + at::embedding(types_, types) + positions_.narrow(0, 0, words.size(1));
    return dropped(*this, norm_->forward(sum), dropout_);
  }
  const torch::Tensor& words() const { return words_; }
  int64_t positions() const { return positions_.size(0); }
  // From now on the replicas along the axis have some words each.
  void divide_words(const std::string& axis) { axis_ = axis; }

 private:
  int64_t vocabulary_;
  double dropout_;
  std::string axis_;  // along which the words are divided; empty: it has all of them
  torch::Tensor words_, positions_, types_;
  torch::nn::LayerNorm norm_{nullptr};
};

const torch::Tensor& input_of(const NamedTensors& inputs, const char* name) {
  const auto found = std::find_if(inputs.begin(), inputs.end(), [&](const auto& each) { return each.first == name; });
  if (found == inputs.end()) {
    fail<InvalidArgument>("[models] bert: the inputs have no ", name,
                          "; wanted input_word_ids, input_mask, input_type_ids and masked_lm_positions");
  }
  const torch::Tensor& x = found->second;
  if (x.dim() == 2 && at::isIntegralType(x.scalar_type(), /*includeBool=*/true)) return x;
  fail<InvalidArgument>("[models] bert: ", name, " is ", x.scalar_type(), " ", x.sizes(),
                        ", wanted an integer dtype, [examples, tokens or masked tokens]");
}

class Bert final : public NamedModule, public DividedModule, public DividesPositions, public LeavesParts {
 public:
  explicit Bert(const BertOptions& options) : options_(options) {
    const auto bert = register_module("bert", std::make_shared<torch::nn::Module>());
    embeddings_ = bert->register_module("embeddings", std::make_shared<BertEmbeddings>(options));
    const auto encoder = bert->register_module("encoder", std::make_shared<torch::nn::Module>());
    const auto layers = encoder->register_module("layer", std::make_shared<torch::nn::Module>());
    for (int64_t i = 0; i < options.num_layers; ++i) {
      blocks_.push_back(layers->register_module(std::to_string(i), std::make_shared<BertBlock>(options)));
    }
    const auto heads = register_module("cls", std::make_shared<torch::nn::Module>());
    const auto predictions = heads->register_module("predictions", std::make_shared<torch::nn::Module>());
    bias_ = predictions->register_parameter("bias", at::zeros({options.vocab_size}));
    const auto transform = predictions->register_module("transform", std::make_shared<torch::nn::Module>());
    transform_ = transform->register_module(
        "dense", linear(options.hidden_size, options.hidden_size, options.mlm_initializer_range));
    norm_ = transform->register_module("LayerNorm", layer_norm(options));
    if (!options.next_sentence) return;
    pooler_ =
        bert->register_module("pooler", std::make_shared<torch::nn::Module>())
            ->register_module("dense", linear(options.hidden_size, options.hidden_size, options.initializer_range));
    next_ = heads->register_module("seq_relationship", linear(options.hidden_size, 2, options.initializer_range));
  }

  NamedTensors forward(const NamedTensors& inputs) override {
    const torch::Tensor words = input_of(inputs, "input_word_ids").to(torch::kLong);
    const torch::Tensor types = input_of(inputs, "input_type_ids").to(torch::kLong);
    const torch::Tensor padding = input_of(inputs, "input_mask").eq(0).unsqueeze(1).unsqueeze(1);
    if (words.size(1) > embeddings_->positions()) {
      fail<InvalidArgument>("[models] bert: the examples have ", words.size(1), " tokens, wanted at most ",
                            embeddings_->positions(), " (max_positions)");
    }
    torch::Tensor y = in_positions(embeddings_->forward(words, types), positions_axis_);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const auto& block = blocks_[i];
      if (i > 0) y = stage_place(y, "layer." + std::to_string(i));
      const auto forward = [block, padding](const torch::Tensor& x) { return block->forward(x, padding); };
      y = options_.remat ? remat(block, forward, y) : forward(y);
    }
    y = whole_of(y);
    NamedTensors outputs = {{"mlm_logits", logits(y, input_of(inputs, "masked_lm_positions"))}};
    if (next_) outputs.emplace_back("next_sentence", affine(next_, at::tanh(affine(pooler_, y.select(1, 0)))));
    return outputs;
  }
  // The replicas along the axis have some words each, of the embeddings and of the logits.
  void divide(const ParameterCuts& cuts, const Topology& /*topology*/) override {
    axis_ = require_cuts(kBert, cuts,
                         {{"bert.embeddings.word_embeddings.weight", {"*", ""}}, {"cls.predictions.bias", {"*"}}});
    embeddings_->divide_words(axis_);
  }
  void leave_parts() override { leaves_parts_ = true; }
  void divide_positions(const std::string& axis) override { positions_axis_ = axis; }

 private:
  // Returns the logits of the tokens at the positions, which are numbers within each example.
  torch::Tensor logits(const torch::Tensor& y, const torch::Tensor& positions) {
    const int64_t steps = y.size(1);
    // Elsewhere it would have to be waited for, and a trace would keep what it has seen.
    if (positions.is_cpu() && positions.numel() > 0 && !at::tracer::impl::is_dispatch_enabled()) {
      const auto [least, most] = at::aminmax(positions);
      if (least.item<int64_t>() < 0 || most.item<int64_t>() >= steps) {
        fail<InvalidArgument>("[models] bert: masked_lm_positions are from ", least.item<int64_t>(), " to ",
                              most.item<int64_t>(), ", wanted 0 to ", steps - 1);
      }
    }
    const torch::Tensor first = at::arange(y.size(0), positions.options().dtype(torch::kLong)) * steps;
    const torch::Tensor rows = positions.to(torch::kLong) + first.unsqueeze(1);
    const torch::Tensor masked = at::embedding(y.reshape({y.size(0) * steps, y.size(2)}), rows);
    const torch::Tensor inner = norm_->forward(options_.mlm_activation(affine(transform_, masked)));
    if (axis_.empty()) return affine(inner, embeddings_->words(), bias_);
    const torch::Tensor part = at::linear(enter_axis(inner, axis_), embeddings_->words(), bias_);
    return leaves_parts_ ? parts_along(part, axis_, -1) : gather_along(part, axis_, -1);
  }

  BertOptions options_;
  std::string axis_;            // along which the vocabulary is divided; empty: it is whole
  bool leaves_parts_ = false;   // the logits stay in parts
  std::string positions_axis_;  // along which the positions are; empty: they are whole
  std::shared_ptr<BertEmbeddings> embeddings_;
  std::vector<std::shared_ptr<BertBlock>> blocks_;
  torch::Tensor bias_;
  torch::nn::Linear transform_{nullptr}, pooler_{nullptr}, next_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
};

void check(const BertOptions& options) {
  const auto positive = [](const char* name, int64_t value) {
    if (value < 1) fail<InvalidArgument>("[models] bert: ", name, " is ", value, ", wanted 1 or more");
  };
  positive("vocab_size", options.vocab_size);
  positive("hidden_size", options.hidden_size);
  positive("num_layers", options.num_layers);
  positive("num_heads", options.num_heads);
  positive("intermediate_size", options.intermediate_size);
  positive("max_positions", options.max_positions);
  positive("type_vocab_size", options.type_vocab_size);
  if (options.hidden_size % options.num_heads != 0) {
    fail<InvalidArgument>("[models] bert: hidden_size is ", options.hidden_size, ", wanted a multiple of num_heads, ",
                          options.num_heads);
  }
  for (const double rate : {options.dropout, options.attention_dropout}) {
    if (!(rate >= 0.0 && rate < 1.0)) {
      fail<InvalidArgument>("[models] bert: a dropout is ", rate, ", wanted 0 to less than 1");
    }
  }
  if (!(options.norm_epsilon >= 0.0 && options.initializer_range >= 0.0 && options.mlm_initializer_range >= 0.0)) {
    fail<InvalidArgument>("[models] bert: norm_epsilon is ", options.norm_epsilon, ", initializer_range ",
                          options.initializer_range, " and mlm_initializer_range ", options.mlm_initializer_range,
                          ", wanted 0 or more");
  }
}

}  // namespace

std::shared_ptr<NamedModule> bert(const BertOptions& options) {
  check(options);
  return std::make_shared<Bert>(options);
}

}  // namespace cohort::models
