#include "cohort/example.h"

#include <ATen/core/Tensor.h>

#include "base/fail.h"

namespace cohort {

namespace {

template <typename Fn>
Example apply(const Example& example, const Fn& fn) {
  const auto each = [&](const torch::Tensor& tensor) { return tensor.defined() ? fn(tensor) : tensor; };
  Example result{each(example.x), each(example.y), each(example.weight), {}};
  result.more.reserve(example.more.size());
  for (const torch::Tensor& column : example.more) result.more.push_back(each(column));
  return result;
}

}  // namespace

int64_t Example::size() const {
  if (!x.defined() || x.dim() == 0) {
    fail<InvalidArgument>("[data] a batch needs an x with a batch dimension, got ",
                          x.defined() ? std::string("a scalar") : std::string("none"), "; call batch() on the dataset");
  }
  return x.size(0);
}

Example Example::to(torch::Device device) const {
  return apply(*this,
               [&](const torch::Tensor& tensor) { return tensor.to(device, /*non_blocking=*/tensor.is_pinned()); });
}

Example Example::rows(int64_t begin, int64_t end) const {
  return apply(*this, [&](const torch::Tensor& tensor) { return tensor.slice(0, begin, end); });
}

}  // namespace cohort
