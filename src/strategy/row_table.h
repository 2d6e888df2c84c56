// RowTable: a table of which a step reads rows, an embedding. Where other processes keep the variables, only the rows
// that are looked up travel, and their gradients; whoever trains it there gives it the way to them.
#pragma once

#include <ATen/Functions.h>
#include <torch/nn/module.h>

#include <functional>
#include <utility>

namespace cohort {

class RowTable final : public torch::nn::Module {
 public:
  // Returns the rows of these indices: of the indices' shape, then the row's.
  using LookUp = std::function<torch::Tensor(const torch::Tensor& indices)>;

  explicit RowTable(torch::Tensor weight) : weight_(register_parameter("weight", std::move(weight))) {}

  // Returns the rows of these indices (int64), with their gradient.
  torch::Tensor forward(const torch::Tensor& indices) const {
    return look_up_ ? look_up_(indices) : at::embedding(weight_, indices);
  }

  const torch::Tensor& weight() const { return weight_; }
  // From now on the rows come from there, and the weight is never read.
  void set_look_up(LookUp look_up) { look_up_ = std::move(look_up); }

 private:
  torch::Tensor weight_;
  LookUp look_up_;
};

}  // namespace cohort
