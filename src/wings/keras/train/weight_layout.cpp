#include "wings/keras/train/weight_layout.h"

#include <ATen/Functions.h>

#include <numeric>

namespace cohort {

namespace {

// Exchanges the first two of three gates along dimension 0.
torch::Tensor exchanged(const torch::Tensor& gates) {
  const std::vector<torch::Tensor> each = gates.chunk(3, 0);
  return at::cat({each.at(1), each.at(0), each.at(2)}, 0);
}

// Returns dimensions in the opposite order, but for the first `kept` ones, which come last as they are.
std::vector<int64_t> kernel_order(int64_t dims) {
  std::vector<int64_t> order(static_cast<std::size_t>(dims));
  std::iota(order.begin(), order.end(), 2);
  order[order.size() - 2] = 1;
  order[order.size() - 1] = 0;
  return order;
}

std::vector<int64_t> inverse(const std::vector<int64_t>& order) {
  std::vector<int64_t> back(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) back[static_cast<std::size_t>(order[i])] = static_cast<int64_t>(i);
  return back;
}

}  // namespace

torch::Tensor to_file(WeightLayout layout, int64_t parts, const torch::Tensor& ours, const torch::Tensor& second) {
  switch (layout) {
    case WeightLayout::kMatrix:
      return ours.t();
    case WeightLayout::kKernel:
      return ours.permute(kernel_order(ours.dim()));
    case WeightLayout::kDepthwise:
      return ours.reshape({-1, parts, ours.size(2), ours.size(3)}).permute({2, 3, 0, 1});
    case WeightLayout::kToHeads:
      return ours.t().reshape({ours.size(1), parts, -1});
    case WeightLayout::kHeads:
      return ours.reshape({parts, -1});
    case WeightLayout::kFromHeads:
      return ours.t().reshape({parts, -1, ours.size(0)});
    case WeightLayout::kGruMatrix:
      return exchanged(ours).t();
    case WeightLayout::kGruBiases:
      return second.defined() ? at::stack({exchanged(ours), exchanged(second)}, 0) : exchanged(ours);
    default:
      return ours;
  }
}

std::vector<torch::Tensor> from_file(const BoundWeight& weight, const torch::Tensor& file, const torch::Tensor& ours,
                                     const FilePlace& place) {
  const torch::Tensor second = weight.second.empty() ? torch::Tensor() : ours;
  const std::vector<int64_t> wanted = to_file(weight.layout, weight.parts, at::empty_like(ours), second).sizes().vec();
  if (file.sizes() != c10::IntArrayRef(wanted)) {
    place.damaged("the shape is ", file.sizes(), ", wanted ", c10::IntArrayRef(wanted), " for the layer");
  }
  const torch::Tensor x = file.to(ours.scalar_type());
  const auto like = [&](const torch::Tensor& tensor) { return tensor.reshape(ours.sizes()).contiguous(); };
  switch (weight.layout) {
    case WeightLayout::kMatrix:
      return {like(x.t())};
    case WeightLayout::kKernel:
      return {like(x.permute(inverse(kernel_order(x.dim()))))};
    case WeightLayout::kDepthwise:
      return {like(x.permute({2, 3, 0, 1}))};
    case WeightLayout::kToHeads:
      return {like(x.flatten(1).t())};
    case WeightLayout::kFromHeads:
      return {like(x.flatten(0, 1).t())};
    case WeightLayout::kGruMatrix:
      return {exchanged(x.t()).contiguous()};
    case WeightLayout::kGruBiases:
      if (x.dim() == 1) return {exchanged(x)};
      return {exchanged(x[0]), exchanged(x[1])};
    default:
      return {like(x)};
  }
}

}  // namespace cohort
