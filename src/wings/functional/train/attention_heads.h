// AttentionHeads: the heads that this replica has of an attention module, where other replicas have the rest.
// AttentionState: the state of the module.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/train/layers/attention.h"

namespace cohort {

class AttentionHeads {
 public:
  virtual ~AttentionHeads() = default;
  virtual int64_t count() const = 0;
  // Returns an input, whose gradient is that of all heads.
  virtual torch::Tensor entered(const torch::Tensor& x) const = 0;
  // Returns the sum of what all heads contribute to the output.
  virtual torch::Tensor sum(const torch::Tensor& own) const = 0;
  // Returns the scores of all heads, [batch, heads, queries, keys].
  virtual torch::Tensor all_scores(const torch::Tensor& own) const = 0;
  // Does drop_out() with the scores of the own heads.
  virtual torch::Tensor drop_scores(const torch::Tensor& own, double rate) const = 0;
};

// One of the four products with a matrix.
class ProjectionModule;

// The state behind an Attention.
class AttentionState {
 public:
  static constexpr std::string_view kType = "MultiHeadAttention";

  // Registers the four products in the module.
  AttentionState(torch::nn::Module& module, const MultiHeadAttentionOptions& options, const Attention::Sizes& sizes,
                 torch::ScalarType dtype, std::string name);

  const MultiHeadAttentionOptions& options() const { return options_; }
  const std::string& layer_name() const { return name_; }
  // Returns the heads that this replica has; null: all of them.
  const AttentionHeads* heads() const { return heads_.get(); }
  void take_heads(std::unique_ptr<AttentionHeads> heads) { heads_ = std::move(heads); }

  // Without "keeps_scores" the result has none, else those of the own heads.
  AttentionOutput compute(const AttentionInputs& inputs, bool keeps_scores) const;
  torch::Tensor penalty() const;

 private:
  // Returns the number of heads that this replica has.
  int64_t num_heads() const { return heads_ == nullptr ? options_.num_heads : heads_->count(); }

  // Returns whether there is another mask than the causal one, which shows each query the first key at least.
  static bool is_masked(const AttentionInputs& inputs);

  // Returns x with zeros for the queries that see no key.
  static torch::Tensor without(const torch::Tensor& blind, const torch::Tensor& x);

  torch::Tensor dropped(const torch::Tensor& scores) const;

  bool drops() const { return module_.is_training() && options_.dropout > 0.0; }

  // Returns whether queries that see no key get the mean of all values.
  bool gives_means(bool keeps_scores) const {
    return options_.masks == MultiHeadAttentionOptions::Masks::kKeras3 && options_.dropout == 0.0 && !keeps_scores;
  }

  // Returns what is added to the scores of what is not seen.
  static torch::Tensor added_for(const torch::Tensor& seen, torch::ScalarType dtype);

  // Returns scores of which all that are not seen are one number, without a gradient: a query that sees no key gives
  // all of them the same weight.
  static torch::Tensor without_unseen(const torch::Tensor& scores, const torch::Tensor& seen);

  torch::Tensor fused(const AttentionInputs& inputs, const torch::Tensor& seen, const torch::Tensor& query,
                      const torch::Tensor& key, const torch::Tensor& value) const;

  // The positions are divided, and no replica has the scores of all of them.
  torch::Tensor attend_in_parts(const AttentionInputs& inputs, const torch::Tensor& query, const torch::Tensor& key,
                                const torch::Tensor& value) const;

  void check(const torch::Tensor& x, const char* which, int64_t size) const;

  torch::Tensor entered(const torch::Tensor& x) const { return heads_ == nullptr ? x : heads_->entered(x); }
  torch::Tensor projected(const torch::Tensor& x) const;

  // [batch, steps, heads * size] -> [batch, heads, steps, size]
  torch::Tensor by_heads(const torch::Tensor& x, int64_t size) const;
  // [batch, heads, steps, size] -> [batch, steps, heads * size]
  torch::Tensor together(const torch::Tensor& x) const;

  bool is_causal(const AttentionInputs& inputs) const { return inputs.use_causal_mask || options_.use_causal_mask; }

  // Returns what each mask lets be seen, to be broadcast to the scores.
  std::vector<torch::Tensor> masks_of(const AttentionInputs& inputs, int64_t queries, int64_t keys) const;

  // Returns what all of them and the causal mask let be seen; undefined for everything.
  torch::Tensor mask_for(const AttentionInputs& inputs, int64_t before, const torch::Tensor& query,
                         const torch::Tensor& key) const;

  torch::nn::Module& module_;
  MultiHeadAttentionOptions options_;
  std::string name_;
  std::unique_ptr<AttentionHeads> heads_;  // null: this replica has all of them
  Attention::Sizes sizes_;
  int64_t head_value_;
  std::shared_ptr<ProjectionModule> query_, key_, value_, output_;
};

}  // namespace cohort
