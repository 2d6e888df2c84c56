// MultiHeadAttention: softmax(query key^T / sqrt(key_dim)) value, for each head. Masks are added as numbers to the
// scores; a query that sees no key gets zeros.
#include <ATen/Functions.h>

#include <cmath>
#include <limits>

#include "cohort/train/layers/attention.h"
#include "ops/dense_product.h"
#include "strategy/divided.h"
#include "train/layers/fused_attention.h"
#include "train/layers/support.h"
#include "wings/functional/train/attention_heads.h"

namespace cohort {

namespace {

constexpr std::string_view kAttention = AttentionState::kType;
constexpr double kUnseen = -1e9;      // is added to scores that are masked out
constexpr double kUnseenHalf = -3e4;  // the same in float16

}  // namespace

class ProjectionModule final : public torch::nn::Module {
 public:
  ProjectionModule(const MultiHeadAttentionOptions& options, int64_t inputs, int64_t outputs, torch::ScalarType dtype) {
    weight = register_parameter("weight", torch::empty({outputs, inputs}, dtype));
    options.kernel_initializer.fill(weight, Fans::of_kernel({inputs, outputs}));
    if (!options.use_bias) return;
    bias = register_parameter("bias", torch::empty({outputs}, dtype));
    options.bias_initializer.fill(bias, Fans::of_kernel({outputs}));
  }
  torch::Tensor operator()(const torch::Tensor& x) const { return affine(x, weight, bias); }

  torch::Tensor weight, bias;
};

AttentionState::AttentionState(torch::nn::Module& module, const MultiHeadAttentionOptions& options,
                               const Attention::Sizes& sizes, torch::ScalarType dtype, std::string name)
    : module_(module),
      options_(options),
      name_(std::move(name)),
      sizes_(sizes),
      head_value_(options.value_dim > 0 ? options.value_dim : options.key_dim) {
  const int64_t heads = options.num_heads;
  const int64_t output = options.output_dim > 0 ? options.output_dim : sizes.query;
  const auto add = [&](const char* part, int64_t inputs, int64_t outputs) {
    return module.register_module(part, std::make_shared<ProjectionModule>(options, inputs, outputs, dtype));
  };
  query_ = add("query", sizes.query, heads * options.key_dim);
  key_ = add("key", sizes.key, heads * options.key_dim);
  value_ = add("value", sizes.value, heads * head_value_);
  output_ = add("output", heads * head_value_, output);
}

torch::Tensor AttentionState::penalty() const {
  const Regularizer &kernel = options_.kernel_regularizer, &bias = options_.bias_regularizer;
  return penalty_of({{kernel, query_->weight},
                     {bias, query_->bias},
                     {kernel, key_->weight},
                     {bias, key_->bias},
                     {kernel, value_->weight},
                     {bias, value_->bias},
                     {kernel, output_->weight},
                     {bias, output_->bias}});
}

AttentionOutput AttentionState::compute(const AttentionInputs& inputs, bool keeps_scores) const {
  check(inputs.query, "the query", sizes_.query);
  check(inputs.value, "the value", sizes_.value);
  const torch::Tensor& keys = inputs.key.defined() ? inputs.key : inputs.value;
  check(keys, "the key", sizes_.key);
  if (keys.size(1) != inputs.value.size(1)) {
    fail_called(name_, kAttention, keys, c10::str("a key for each of the ", inputs.value.size(1), " values"));
  }
  const torch::Tensor asked = entered(inputs.query);
  const torch::Tensor given = inputs.value.is_same(inputs.query) ? asked : entered(inputs.value);
  const torch::Tensor query = by_heads((*query_)(asked), options_.key_dim);
  torch::Tensor key = by_heads((*key_)(inputs.key.defined() ? entered(inputs.key) : given), options_.key_dim);
  torch::Tensor value = by_heads((*value_)(given), head_value_);
  if (is_divided(query)) return {.output = projected(together(attend_in_parts(inputs, query, key, value)))};
  const int64_t before = inputs.cache != nullptr && inputs.cache->key.defined() ? inputs.cache->key.size(2) : 0;
  if (before > 0) {
    key = at::cat({inputs.cache->key, key}, 2);
    value = at::cat({inputs.cache->value, value}, 2);
  }
  if (inputs.cache != nullptr) *inputs.cache = {.key = key, .value = value};
  const torch::Tensor seen = mask_for(inputs, before, query, key);
  const bool has_means = is_masked(inputs) && gives_means(keeps_scores);
  const bool hides_blind = is_masked(inputs) && !has_means;
  const torch::Tensor blind = hides_blind ? blind_queries(seen.logical_not()) : torch::Tensor();
  if (!keeps_scores && !drops() && !has_means && fuses_attention(query)) {
    return {.output = projected(together(without(blind, fused(inputs, seen, query, key, value))))};
  }
  torch::Tensor scores =
      at::matmul(query * (1.0 / std::sqrt(static_cast<double>(options_.key_dim))), key.transpose(2, 3));
  if (seen.defined()) {
    scores = gives_means(keeps_scores) ? without_unseen(scores, seen) : scores + added_for(seen, scores.scalar_type());
  }
  scores = at::softmax(scores, -1);
  const torch::Tensor mixed = at::matmul(drops() ? dropped(scores) : scores, value);
  return {.output = projected(together(without(blind, mixed))),
          .scores = keeps_scores ? without(blind, scores) : torch::Tensor()};
}

bool AttentionState::is_masked(const AttentionInputs& inputs) {
  return inputs.attention_mask.defined() || inputs.query_mask.defined() || inputs.value_mask.defined() ||
         inputs.key_mask.defined();
}

torch::Tensor AttentionState::without(const torch::Tensor& blind, const torch::Tensor& x) {
  return blind.defined() ? x.masked_fill(blind, 0.0) : x;
}

torch::Tensor AttentionState::dropped(const torch::Tensor& scores) const {
  return heads_ == nullptr ? drop_out(scores, options_.dropout) : heads_->drop_scores(scores, options_.dropout);
}

torch::Tensor AttentionState::added_for(const torch::Tensor& seen, torch::ScalarType dtype) {
  return seen.logical_not().to(dtype) * (dtype == torch::kHalf ? kUnseenHalf : kUnseen);
}

torch::Tensor AttentionState::without_unseen(const torch::Tensor& scores, const torch::Tensor& seen) {
  const torch::ScalarType dtype = scores.scalar_type();
  const double lowest = dtype == torch::kDouble ? std::numeric_limits<double>::lowest()
                        : dtype == torch::kHalf ? -65504.0
                                                : std::numeric_limits<float>::lowest();
  return scores.masked_fill(seen.logical_not(), 0.7 * lowest);
}

torch::Tensor AttentionState::fused(const AttentionInputs& inputs, const torch::Tensor& seen,
                                    const torch::Tensor& query, const torch::Tensor& key,
                                    const torch::Tensor& value) const {
  if (!is_masked(inputs) && is_causal(inputs) && query.size(2) == key.size(2)) {
    return fused_attention(query, key, value, {}, /*causal=*/true);
  }
  return fused_attention(query, key, value, seen.defined() ? added_for(seen, query.scalar_type()) : torch::Tensor());
}

torch::Tensor AttentionState::attend_in_parts(const AttentionInputs& inputs, const torch::Tensor& query,
                                              const torch::Tensor& key, const torch::Tensor& value) const {
  if (is_masked(inputs) && gives_means(/*keeps_scores=*/false)) {
    fail<InvalidArgument>("[layers] ", name_,
                          " (MultiHeadAttention): masks is kKeras3, but this replica has a part of ", "the queries ",
                          inputs.query.sizes(), "; kZeros is supported there");
  }
  if (inputs.cache != nullptr) {
    fail<InvalidArgument>("[layers] ", name_, " (MultiHeadAttention): a cache of keys and values came with queries ",
                          inputs.query.sizes(), " of which this replica has a part; outputs that are made step by ",
                          "step want them whole");
  }
  return DividedTensor::of(query)->attend({.query = query,
                                           .key = key,
                                           .value = value,
                                           .who = c10::str("MultiHeadAttention \"", name_, "\""),
                                           .scale = 1.0 / std::sqrt(static_cast<double>(options_.key_dim)),
                                           .causal = is_causal(inputs),
                                           .masks = masks_of(inputs, query.size(2), key.size(2)),
                                           .dropout = module_.is_training() ? options_.dropout : 0.0});
}

void AttentionState::check(const torch::Tensor& x, const char* which, int64_t size) const {
  if (x.defined() && x.dim() == 3 && x.size(2) == size && x.is_floating_point()) return;
  fail_called(name_, kAttention, x, c10::str("floating point [batch, steps, ", size, "] as ", which));
}

torch::Tensor AttentionState::projected(const torch::Tensor& x) const {
  if (heads_ == nullptr) return (*output_)(x);
  const torch::Tensor sum = heads_->sum(at::linear(x, output_->weight));
  return output_->bias.defined() ? sum + output_->bias : sum;
}

torch::Tensor AttentionState::by_heads(const torch::Tensor& x, int64_t size) const {
  return x.view({x.size(0), x.size(1), num_heads(), size}).transpose(1, 2);
}

torch::Tensor AttentionState::together(const torch::Tensor& x) const {
  return x.transpose(1, 2).reshape({x.size(0), x.size(2), num_heads() * head_value_});
}

std::vector<torch::Tensor> AttentionState::masks_of(const AttentionInputs& inputs, int64_t queries,
                                                    int64_t keys) const {
  std::vector<torch::Tensor> masks;
  const auto check_mask = [&](const torch::Tensor& mask, const char* which, int64_t rank, int64_t size) {
    const bool fits = mask.dim() == rank && mask.size(-1) == size;
    if (!fits)
      fail_called(name_, kAttention, mask,
                  c10::str("a mask of ", rank, " dimensions, ", size, " the last, as ", which));
  };
  if (inputs.query_mask.defined()) {
    check_mask(inputs.query_mask, "query_mask", 2, queries);
    masks.push_back(inputs.query_mask.unsqueeze(1).unsqueeze(-1).to(torch::kBool));
  }
  for (const torch::Tensor& mask : {inputs.value_mask, inputs.key_mask}) {
    if (!mask.defined()) continue;
    check_mask(mask, "the mask of keys and values", 2, keys);
    masks.push_back(mask.unsqueeze(1).unsqueeze(1).to(torch::kBool));
  }
  if (inputs.attention_mask.defined()) {
    check_mask(inputs.attention_mask, "attention_mask", 3, keys);
    masks.push_back(inputs.attention_mask.unsqueeze(1).to(torch::kBool));
  }
  return masks;
}

torch::Tensor AttentionState::mask_for(const AttentionInputs& inputs, int64_t before, const torch::Tensor& query,
                                       const torch::Tensor& key) const {
  const int64_t queries = query.size(2);
  const int64_t keys = key.size(2);
  std::vector<torch::Tensor> masks = masks_of(inputs, queries, keys);
  if (is_causal(inputs)) {
    const auto options = at::TensorOptions(torch::kLong).device(query.device());
    masks.push_back(at::arange(queries, options).add(before).unsqueeze(1).ge(at::arange(keys, options)));
  }
  torch::Tensor seen;
  for (const torch::Tensor& mask : masks) seen = seen.defined() ? seen.logical_and(mask) : mask;
  return seen;
}

Attention::Attention(const MultiHeadAttentionOptions& options, const Sizes& sizes, torch::ScalarType dtype,
                     std::string name)
    : state_(std::make_unique<AttentionState>(*this, options, sizes, dtype, std::move(name))) {}

Attention::~Attention() = default;

AttentionOutput Attention::attend(const AttentionInputs& inputs) {
  AttentionOutput result = state_->compute(inputs, /*keeps_scores=*/true);
  if (state_->heads() != nullptr) result.scores = state_->heads()->all_scores(result.scores);
  return result;
}

LayerValues Attention::forward_values(const LayerValues& inputs) {
  const std::vector<torch::Tensor>& tensors = inputs.tensors;
  const auto mask = [&](std::size_t i) { return i < inputs.masks.size() ? inputs.masks[i] : torch::Tensor(); };
  const std::size_t value = tensors.size() > 1 ? 1 : 0;
  const bool keeps_scores = state_->options().return_attention_scores;
  AttentionOutput made = state_->compute({.query = tensors[0],
                                          .value = tensors[value],
                                          .key = tensors.size() > 2 ? tensors[2] : torch::Tensor(),
                                          .attention_mask = mask(tensors.size()),
                                          .query_mask = mask(0),
                                          .value_mask = mask(value),
                                          .key_mask = tensors.size() > 2 ? mask(2) : torch::Tensor()},
                                         keeps_scores);
  if (!keeps_scores) return {.tensors = {made.output}, .masks = {mask(0)}};
  if (state_->heads() != nullptr) made.scores = state_->heads()->all_scores(made.scores);
  return {.tensors = {made.output, made.scores}, .masks = {mask(0), {}}};
}

torch::Tensor Attention::mask_of(const torch::Tensor& /*x*/, const torch::Tensor& mask) {
  return mask;
}

torch::Tensor Attention::penalty() const {
  return state_->penalty();
}

namespace {

void check_attention(const MultiHeadAttentionOptions& options) {
  if (options.num_heads <= 0 || options.key_dim <= 0 || options.value_dim < 0 || options.output_dim < 0) {
    fail_option(kAttention, "num_heads and key_dim must be positive, value_dim and output_dim 0 or more, got ",
                options.num_heads, ", ", options.key_dim, ", ", options.value_dim, " and ", options.output_dim);
  }
  if (!(options.dropout >= 0.0 && options.dropout < 1.0)) {
    fail_option(kAttention, "dropout must be in [0, 1), got ", options.dropout);
  }
}

class AttentionKind final : public GraphLayerKind {
 public:
  explicit AttentionKind(MultiHeadAttentionOptions options) : options_(std::move(options)) {
    check_attention(options_);
  }
  std::string_view type() const override { return kAttention; }
  std::string_view base_name() const override { return "multi_head_attention"; }
  bool takes_attention_mask() const override { return true; }
  bool ends_masks() const override { return options_.masks == MultiHeadAttentionOptions::Masks::kKeras3; }

  std::vector<Shape> output_shapes(const BuildContext& context, const std::vector<Shape>& inputs) const override {
    bool fits = !inputs.empty() && inputs.size() <= 3;
    std::string came;
    for (const Shape& each : inputs) {
      came += (came.empty() ? "" : ", ") + to_text(each);
      fits = fits && each.size() == 2 && each[1] > 0;
    }
    const std::size_t value = inputs.size() > 1 ? 1 : 0;
    fits = fits && (inputs.back()[0] == inputs[value][0] || inputs.back()[0] < 0 || inputs[value][0] < 0);
    if (!fits) {
      fail_input(context.name, kAttention, came + " an example",
                 "[steps, size] with a known size, or queries, values and keys, of which there are as many as values");
    }
    std::vector<Shape> outputs = {{inputs[0][0], options_.output_dim > 0 ? options_.output_dim : inputs[0][1]}};
    if (options_.return_attention_scores) outputs.push_back({options_.num_heads, inputs[0][0], inputs[value][0]});
    return outputs;
  }
  std::shared_ptr<GraphLayerModule> build_for(const BuildContext& context,
                                              const std::vector<Shape>& inputs) const override {
    const Attention::Sizes sizes = {
        .query = inputs[0][1], .value = inputs[inputs.size() > 1 ? 1 : 0][1], .key = inputs.back()[1]};
    return std::make_shared<Attention>(options_, sizes, context.dtype, context.name);
  }

 private:
  MultiHeadAttentionOptions options_;
};

}  // namespace

std::shared_ptr<Attention> make_attention(const MultiHeadAttentionOptions& options, int64_t query_dim,
                                          int64_t value_dim, torch::ScalarType dtype) {
  check_attention(options);
  if (query_dim <= 0 || value_dim <= 0) {
    fail_option(kAttention, "queries and values must have a size, got ", query_dim, " and ", value_dim);
  }
  const Attention::Sizes sizes = {.query = query_dim, .value = value_dim, .key = value_dim};
  return std::make_shared<Attention>(options, sizes, dtype, options.name.empty() ? "attention" : options.name);
}

Layer MultiHeadAttention(const MultiHeadAttentionOptions& options) {
  return make_layer<AttentionKind>(options, options.trainable);
}

}  // namespace cohort
