// Shapes of operations that have no kernel for the device Meta in some version of LibTorch.
#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>

#include "record/operations.h"

namespace cohort::record::shapes {

namespace {

using Arguments = std::vector<c10::IValue>;

torch::Tensor meta(c10::IntArrayRef sizes, torch::ScalarType dtype) {
  return at::empty(sizes, at::TensorOptions().dtype(dtype).device(c10::DeviceType::Meta));
}

// The sizes without the dimensions; an empty list is all of them.
std::vector<int64_t> reduced(const torch::Tensor& x, const c10::IValue& dims, bool keepdim) {
  std::vector<bool> gone(static_cast<std::size_t>(x.dim()), false);
  std::vector<int64_t> list;
  if (!dims.isNone()) list = dims.toIntVector();
  for (const int64_t d : list) gone.at(static_cast<std::size_t>(c10::maybe_wrap_dim(d, x.dim()))) = true;
  std::vector<int64_t> sizes;
  for (int64_t d = 0; d < x.dim(); ++d) {
    const bool is_gone = list.empty() || gone[static_cast<std::size_t>(d)];
    if (!is_gone) sizes.push_back(x.size(d));
    if (is_gone && keepdim) sizes.push_back(1);
  }
  return sizes;
}

}  // namespace

std::vector<torch::Tensor> like_first(const Arguments& a) {
  return {at::empty_like(a.at(0).toTensor())};
}
std::vector<torch::Tensor> like_first_twice(const Arguments& a) {
  return {like_first(a)[0], like_first(a)[0]};
}
std::vector<torch::Tensor> like_second(const Arguments& a) {
  return {at::empty_like(a.at(1).toTensor())};
}

std::vector<torch::Tensor> broadcast_first_two(const Arguments& a) {
  const torch::Tensor x = a.at(0).toTensor();
  const torch::Tensor y = a.at(1).toTensor();
  return {meta(at::infer_size(x.sizes(), y.sizes()), at::result_type(x, y))};
}

std::vector<torch::Tensor> mv(const Arguments& a) {
  return {meta({a.at(0).toTensor().size(0)}, a.at(0).toTensor().scalar_type())};
}
std::vector<torch::Tensor> scalar_like_first(const Arguments& a) {
  return {meta({}, a.at(0).toTensor().scalar_type())};
}
std::vector<torch::Tensor> dot(const Arguments& a) {
  return scalar_like_first(a);
}
std::vector<torch::Tensor> scalar_of_dtype(const Arguments& a) {
  return {meta({}, a.at(2).toScalarType())};
}

std::vector<torch::Tensor> reduced_once(const Arguments& a) {
  const torch::Tensor x = a.at(0).toTensor();
  return {meta(reduced(x, a.at(1), a.at(3).toBool()), x.scalar_type())};
}
std::vector<torch::Tensor> reduced_twice(const Arguments& a) {
  return {reduced_once(a)[0], reduced_once(a)[0]};
}
std::vector<torch::Tensor> reduced_no_correction(const Arguments& a) {
  const torch::Tensor x = a.at(0).toTensor();
  return {meta(reduced(x, a.at(1), a.at(2).toBool()), x.scalar_type())};
}

}  // namespace cohort::record::shapes
