#include "wings/function/base/meta_shapes.h"

#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>

#include <unordered_map>

#include "base/fail.h"

namespace cohort {

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

std::vector<torch::Tensor> like_first(const Arguments& a) {
  return {at::empty_like(a.at(0).toTensor())};
}
std::vector<torch::Tensor> like_first_twice(const Arguments& a) {
  return {like_first(a)[0], like_first(a)[0]};
}
std::vector<torch::Tensor> like_second(const Arguments& a) {
  return {at::empty_like(a.at(1).toTensor())};
}

std::vector<torch::Tensor> like_second_and_third(const Arguments& a) {
  return {like_second(a)[0], at::empty_like(a.at(2).toTensor())};
}

std::vector<torch::Tensor> broadcast_first_two(const Arguments& a) {
  const torch::Tensor x = a.at(0).toTensor();
  const torch::Tensor y = a.at(1).toTensor();
  return {meta(at::infer_size(x.sizes(), y.sizes()), at::result_type(x, y))};
}

// Returns the sizes of all tensors among the arguments, broadcast.
std::vector<int64_t> broadcast_all(const Arguments& a) {
  std::vector<int64_t> sizes;
  for (const c10::IValue& value : a) {
    if (value.isTensor() && value.toTensor().defined()) sizes = at::infer_size(sizes, value.toTensor().sizes());
  }
  return sizes;
}
// All tensors broadcast: booleans, and where's.
std::vector<torch::Tensor> truth(const Arguments& a) {
  return {meta(broadcast_all(a), torch::kBool)};
}
std::vector<torch::Tensor> where(const Arguments& a) {
  return {meta(broadcast_all(a), at::result_type(a.at(1).toTensor(), a.at(2).toTensor()))};
}

std::vector<torch::Tensor> mv(const Arguments& a) {
  return {meta({a.at(0).toTensor().size(0)}, a.at(0).toTensor().scalar_type())};
}
// Without dimensions, of the first argument's dtype or that of the third argument.
std::vector<torch::Tensor> scalar_like_first(const Arguments& a) {
  return {meta({}, a.at(0).toTensor().scalar_type())};
}
std::vector<torch::Tensor> dot(const Arguments& a) {
  return scalar_like_first(a);
}
std::vector<torch::Tensor> scalar_of_dtype(const Arguments& a) {
  return {meta({}, a.at(2).toScalarType())};
}

// Arguments: self, dtype. Integers are multiplied in 64 bits.
// Those of the operations of these names.
std::vector<torch::Tensor> product(const Arguments& a) {
  const torch::ScalarType own = a.at(0).toTensor().scalar_type();
  const bool integral = c10::isIntegralType(own, /*includeBool=*/true);
  return {meta({}, !a.at(1).isNone() ? a.at(1).toScalarType() : integral ? torch::kLong : own)};
}

// Without the dimensions of argument 1; keepdim is argument 3 (after a correction) or 2.
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

// Arguments: input, weight, bias, stride, padding, dilation, transposed, output_padding, groups.
std::vector<torch::Tensor> convolution(const Arguments& a) {
  const torch::Tensor x = a.at(0).toTensor();
  const torch::Tensor w = a.at(1).toTensor();
  const auto at = [&](std::size_t i, int64_t d) {
    const std::vector<int64_t> list = a.at(i).toIntVector();
    return list.at(list.size() == 1 ? 0 : static_cast<std::size_t>(d));
  };
  const bool transposed = a.at(6).toBool();
  std::vector<int64_t> sizes{x.size(0), transposed ? w.size(1) * a.at(8).toInt() : w.size(0)};
  for (int64_t d = 0; d < x.dim() - 2; ++d) {
    const int64_t extent = at(5, d) * (w.size(d + 2) - 1);
    const int64_t size = x.size(d + 2);
    sizes.push_back(transposed ? (size - 1) * at(3, d) - 2 * at(4, d) + extent + at(7, d) + 1
                               : (size + 2 * at(4, d) - extent - 1) / at(3, d) + 1);
  }
  return {meta(sizes, x.scalar_type())};
}

// Arguments: gradient, input, weight, bias_sizes, ..., output_mask.
std::vector<torch::Tensor> convolution_backward(const Arguments& a) {
  const torch::Tensor x = a.at(1).toTensor();
  const torch::Tensor w = a.at(2).toTensor();
  const auto mask = a.back().toBoolList();
  std::vector<torch::Tensor> results(3);
  if (mask[0]) results[0] = meta(x.sizes(), x.scalar_type());
  if (mask[1]) results[1] = meta(w.sizes(), w.scalar_type());
  if (mask[2]) results[2] = meta(a.at(0).toTensor().size(1), w.scalar_type());
  return results;
}

// Arguments: self, padding, which is listed from the last dimension on. LibTorch's kernels for the host refuse what
// makes no sense, and so does this.
std::vector<torch::Tensor> replication_pad(const Arguments& a) {
  const torch::Tensor x = a.at(0).toTensor();
  const std::vector<int64_t> list = a.at(1).toIntVector();
  std::vector<int64_t> sizes = x.sizes().vec();
  for (std::size_t i = 0; i + 1 < list.size(); i += 2) {
    int64_t& size = sizes.at(sizes.size() - 1 - i / 2);
    if (size == 0) fail<InvalidArgument>("[record] padding a tensor of ", x.sizes(), ", which has no edge to pad with");
    size += list[i] + list[i + 1];
    if (size < 1)
      fail<InvalidArgument>("[record] the padding ", c10::IntArrayRef(list), " leaves nothing of a tensor of ",
                            x.sizes());
  }
  return {meta(sizes, x.scalar_type())};
}
std::vector<torch::Tensor> reflection_pad(const Arguments& a) {
  const torch::Tensor x = a.at(0).toTensor();
  const std::vector<int64_t> list = a.at(1).toIntVector();
  for (std::size_t i = 0; i < list.size(); ++i) {
    const int64_t size = x.size(x.dim() - 1 - static_cast<int64_t>(i / 2));
    if (list[i] < size) continue;
    fail<InvalidArgument>("[record] the padding ", c10::IntArrayRef(list), " of a tensor of ", x.sizes(),
                          ": what is mirrored has to be smaller than its dimension");
  }
  return replication_pad(a);
}

std::vector<torch::Tensor> adaptive_pool(const Arguments& a) {
  const torch::Tensor x = a.at(0).toTensor();
  const std::vector<int64_t> last = a.at(1).toIntVector();
  std::vector<int64_t> sizes(x.sizes().begin(), x.sizes().end() - 2);
  sizes.insert(sizes.end(), last.begin(), last.end());
  return {meta(sizes, x.scalar_type())};
}

std::vector<torch::Tensor> batch_norm_backward(const Arguments& a) {
  const torch::Tensor x = a.at(1).toTensor();
  const auto mask = a.back().toBoolList();
  const bool has_weight = a.at(2).isTensor() && a.at(2).toTensor().defined();
  const torch::ScalarType dtype = has_weight ? a.at(2).toTensor().scalar_type() : x.scalar_type();
  std::vector<torch::Tensor> results(3);
  if (mask[0]) results[0] = at::empty_like(x);
  if (mask[1]) results[1] = meta(x.size(1), dtype);
  if (mask[2]) results[2] = meta(x.size(1), dtype);
  return results;
}

std::vector<torch::Tensor> layer_norm(const Arguments& a) {
  const torch::Tensor x = a.at(0).toTensor();
  const auto normalized = static_cast<int64_t>(a.at(1).toIntVector().size());
  std::vector<int64_t> sizes = x.sizes().vec();
  for (int64_t d = x.dim() - normalized; d < x.dim(); ++d) sizes[static_cast<std::size_t>(d)] = 1;
  const bool is_half = x.scalar_type() == torch::kHalf || x.scalar_type() == torch::kBFloat16;
  const torch::ScalarType dtype = is_half ? torch::kFloat : x.scalar_type();
  return {meta(x.sizes(), x.scalar_type()), meta(sizes, dtype), meta(sizes, dtype)};
}

// Arguments: gradient, input, normalized_shape, mean, inverse deviation, weight, bias, output_mask.
std::vector<torch::Tensor> layer_norm_backward(const Arguments& a) {
  const torch::Tensor x = a.at(1).toTensor();
  const auto mask = a.back().toBoolList();
  std::vector<torch::Tensor> results(3);
  if (mask[0]) results[0] = meta(x.sizes(), x.scalar_type());
  for (const std::size_t i : {1, 2}) {
    const c10::IValue& parameter = a.at(4 + i);
    const bool there = parameter.isTensor() && parameter.toTensor().defined();
    if (mask[i] && there) results[i] = meta(parameter.toTensor().sizes(), parameter.toTensor().scalar_type());
  }
  return results;
}

// Arguments: gradient, input, mean, inverse deviation, weight, N, C, elements, groups, output_mask.
std::vector<torch::Tensor> group_norm_backward(const Arguments& a) {
  const torch::Tensor x = a.at(1).toTensor();
  const auto mask = a.back().toBoolList();
  std::vector<torch::Tensor> results(3);
  if (mask[0]) results[0] = meta(x.sizes(), x.scalar_type());
  if (mask[1]) results[1] = meta(x.size(1), x.scalar_type());
  if (mask[2]) results[2] = meta(x.size(1), x.scalar_type());
  return results;
}

// Arguments: gradient, input_sizes.
std::vector<torch::Tensor> unfold_backward(const Arguments& a) {
  return {meta(a.at(1).toIntVector(), a.at(0).toTensor().scalar_type())};
}

std::vector<torch::Tensor> nll_loss(const Arguments& a) {
  const torch::Tensor x = a.at(0).toTensor();
  const torch::Tensor target = a.at(1).toTensor();
  const torch::Tensor total = meta({}, x.scalar_type());
  if (a.at(3).toInt() != 0) return {total, meta({}, x.scalar_type())};
  return {meta(target.sizes(), x.scalar_type()), total};
}

// Arguments: self, target, reduction.
std::vector<torch::Tensor> elementwise_loss(const Arguments& a) {
  if (a.at(2).toInt() == 0) return broadcast_first_two(a);
  return {meta({}, broadcast_first_two(a)[0].scalar_type())};
}
// Arguments: self, target, weight, reduction.
std::vector<torch::Tensor> weighted_loss(const Arguments& a) {
  return a.at(3).toInt() == 0 ? like_first(a) : scalar_like_first(a);
}

std::vector<torch::Tensor> index_select(const Arguments& a) {
  const torch::Tensor x = a.at(0).toTensor();
  if (x.dim() == 0) return {at::empty_like(x)};
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[static_cast<std::size_t>(c10::maybe_wrap_dim(a.at(1).toInt(), x.dim()))] = a.at(2).toTensor().numel();
  return {meta(sizes, x.scalar_type())};
}

std::vector<torch::Tensor> embedding(const Arguments& a) {
  std::vector<int64_t> sizes = a.at(1).toTensor().sizes().vec();
  sizes.push_back(a.at(0).toTensor().size(1));
  return {meta(sizes, a.at(0).toTensor().scalar_type())};
}

// Arguments: gradient, indices, num_weights.
std::vector<torch::Tensor> embedding_backward(const Arguments& a) {
  const torch::Tensor g = a.at(0).toTensor();
  return {meta({a.at(2).toInt(), g.size(-1)}, g.scalar_type())};
}

// The names are those of functional forms.
constexpr std::pair<std::string_view, MetaShape> kShapes[] = {
    {"relu", like_first},
    {"hardtanh", like_first},
    {"hardtanh_backward", like_second},
    {"hardsigmoid_backward", like_second},
    {"hardswish", like_first},
    {"hardswish_backward", like_second},
    {"log_sigmoid_forward", like_first_twice},
    {"log_sigmoid_backward", like_second},
    {"glu_backward", like_second},
    {"prelu", like_first},
    {"prelu_backward", like_second_and_third},
    {"convolution", convolution},
    {"convolution_backward", convolution_backward},
    {"abs", like_first},
    {"logical_not", truth},
    {"isnan", truth},
    {"isfinite", truth},
    {"logical_and", truth},
    {"logical_or", truth},
    {"logical_xor", truth},
    {"where.self", where},
    {"index_select", index_select},
    {"embedding", embedding},
    {"embedding_dense_backward", embedding_backward},
    {"index_put", like_first},
    {"_index_put_impl", like_first},
    {"mv", mv},
    {"dot", dot},
    {"nll_loss_forward", nll_loss},
    {"nll_loss2d_forward", nll_loss},
    {"nll_loss_backward", like_second},
    {"nll_loss2d_backward", like_second},
    {"mse_loss", elementwise_loss},
    {"mse_loss_backward", like_second},
    {"smooth_l1_loss", elementwise_loss},
    {"smooth_l1_loss_backward", like_second},
    {"huber_loss", elementwise_loss},
    {"huber_loss_backward", like_second},
    {"binary_cross_entropy", weighted_loss},
    {"binary_cross_entropy_backward", like_second},
    {"native_batch_norm_backward", batch_norm_backward},
    {"native_layer_norm", layer_norm},
    {"native_layer_norm_backward", layer_norm_backward},
    {"native_group_norm_backward", group_norm_backward},
    {"reflection_pad1d", reflection_pad},
    {"reflection_pad2d", reflection_pad},
    {"reflection_pad3d", reflection_pad},
    {"reflection_pad1d_backward", like_second},
    {"reflection_pad2d_backward", like_second},
    {"reflection_pad3d_backward", like_second},
    {"replication_pad1d", replication_pad},
    {"replication_pad2d", replication_pad},
    {"replication_pad3d", replication_pad},
    {"replication_pad1d_backward", like_second},
    {"replication_pad2d_backward", like_second},
    {"replication_pad3d_backward", like_second},
    {"max_pool2d_with_indices_backward", like_second},
    {"avg_pool2d_backward", like_second},
    {"_adaptive_avg_pool2d", adaptive_pool},
    {"_adaptive_avg_pool2d_backward", like_second},
    {"prod", product},
    {"max", scalar_like_first},
    {"min", scalar_like_first},
    {"var.correction", reduced_once},
    {"std.correction", reduced_once},
    {"var_mean.correction", reduced_twice},
    {"norm.Scalar", scalar_like_first},
    {"norm.ScalarOpt_dtype", scalar_of_dtype},
    {"logsumexp", reduced_no_correction},
    {"unfold_backward", unfold_backward},
    {"flip", like_first},
    {"roll", like_first},
};

}  // namespace

MetaShape find_meta_shape(std::string_view operation) {
  static const std::unordered_map<std::string_view, MetaShape> table(std::begin(kShapes), std::end(kShapes));
  const auto it = table.find(operation);
  return it == table.end() ? nullptr : it->second;
}

}  // namespace cohort
