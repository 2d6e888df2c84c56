// Batch normalization: beside its three results it moves the running statistics, which its schema does not say in all
// versions of LibTorch.

#include "base/fail.h"
#include "wings/xla/record/call.h"
#include "wings/xla/record/cell.h"
#include "wings/xla/record/kernels.h"

namespace cohort::record {

namespace {

using OptionalTensor = c10::optional<torch::Tensor>;

Argument optional_value(const OptionalTensor& tensor) {
  if (!tensor || !tensor->defined()) return {};
  return value_of(*tensor);
}

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> batch_norm(
    const torch::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
    const OptionalTensor& running_mean, const OptionalTensor& running_var, bool training, double momentum, double eps) {
  Recording& recording = cell_of(input).recording();
  const bool moves = training && running_mean && running_mean->defined();
  const torch::ScalarType dtype = input.scalar_type();
  const bool is_half = dtype == torch::kHalf || dtype == torch::kBFloat16;
  const TensorType statistic{is_half ? torch::kFloat : dtype, {training ? input.size(1) : 0}};
  const Value out = make_node(
      "aten::native_batch_norm",
      {value_of(input), optional_value(weight), optional_value(bias), optional_value(running_mean),
       optional_value(running_var), c10::IValue(training), lifted(momentum, statistic.dtype), c10::IValue(eps)},
      {dtype, input.sizes().vec()});
  out.node->outputs.push_back(statistic);
  out.node->outputs.push_back(statistic);
  if (moves) {
    for (const OptionalTensor* running : {&running_mean, &running_var}) {
      out.node->outputs.push_back({(*running)->scalar_type(), (*running)->sizes().vec()});
    }
    assign(*running_mean, {out.node, 3});
    assign(*running_var, {out.node, 4});
  }
  const std::vector<int64_t> strides = dense_strides(statistic.sizes);
  return {make_tensor(out, strided_of(at::empty_like(meta_of(input))), recording),
          make_tensor({out.node, 1}, {statistic.sizes, strides, 0}, recording),
          make_tensor({out.node, 2}, {statistic.sizes, strides, 0}, recording)};
}

}  // namespace

void register_statistics(torch::Library& aten) {
  aten.impl("native_batch_norm", &batch_norm);
}

}  // namespace cohort::record
