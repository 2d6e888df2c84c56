// AttentionHeads: the heads that this replica has of an attention module, where other replicas have the rest.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

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

// The base of the module: what its heads are.
class AttentionOfHeads : public Attention {
 public:
  static constexpr std::string_view kType = "MultiHeadAttention";

  AttentionOfHeads(const MultiHeadAttentionOptions& options, std::string name)
      : options_(options), name_(std::move(name)) {}

  const MultiHeadAttentionOptions& options() const { return options_; }
  const std::string& layer_name() const { return name_; }
  void take_heads(std::unique_ptr<AttentionHeads> heads) { heads_ = std::move(heads); }

 protected:
  // Returns the number of heads that this replica has.
  int64_t num_heads() const { return heads_ == nullptr ? options_.num_heads : heads_->count(); }

  MultiHeadAttentionOptions options_;
  std::string name_;
  std::unique_ptr<AttentionHeads> heads_;  // null: this replica has all of them
};

}  // namespace cohort
