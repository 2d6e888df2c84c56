// The matrix products and convolutions that some work asks of LibTorch.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <vector>

namespace cohort::bench {

// A call with its arguments, which can be made again.
struct ProductCall {
  c10::OperatorHandle operation;
  std::vector<c10::IValue> arguments;
};

// Does the work, without operations of Cohort's own, and returns the products that it asks for on this thread.
std::vector<ProductCall> products_of(const std::function<void()>& work);

// Makes the calls again, without recording what autograd would need.
void make_again(const std::vector<ProductCall>& calls);
// The same, but products of matrices as Cohort's layers make them.
void make_again_as_layers(const std::vector<ProductCall>& calls);

}  // namespace cohort::bench
