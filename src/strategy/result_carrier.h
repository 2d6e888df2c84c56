// ResultCarrier: the tensors of what a function has returned for the microbatches of a share, between processes.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace cohort {

// While it lives, join_tensors() of this thread gives it what it returns, or returns what it has, in the same order.
class ResultCarrier {
 public:
  // Is given tensors.
  ResultCarrier() : ResultCarrier({}, /*has_all=*/false) {}
  // Has tensors.
  explicit ResultCarrier(std::vector<torch::Tensor> tensors) : ResultCarrier(std::move(tensors), /*has_all=*/true) {}
  ResultCarrier(const ResultCarrier&) = delete;
  ResultCarrier& operator=(const ResultCarrier&) = delete;
  ~ResultCarrier();

  // Returns that of this thread; null: there is none.
  static ResultCarrier* current();
  // Returns the next tensor: that of `join`, which it keeps, or its own.
  torch::Tensor next(const std::function<torch::Tensor()>& join);
  std::vector<torch::Tensor>& tensors() { return tensors_; }

 private:
  ResultCarrier(std::vector<torch::Tensor> tensors, bool has_all);

  std::vector<torch::Tensor> tensors_;
  bool has_all_;
  std::size_t taken_ = 0;
};

}  // namespace cohort
