// The families of operations: each file returns its rows of the table.
#pragma once

#include <span>

#include "wings/xla/record/operations.h"
#include "wings/xla/record/stablehlo/lowering.h"

namespace cohort::record::stablehlo {

// Returns whether the gradient of a maximum over windows with this dilation reads the indices.
bool max_pool_reads_indices(const Dims& dilation);

std::span<const OperationInfo> activation_operations();
std::span<const OperationInfo> convolution_operations();
std::span<const OperationInfo> elementwise_operations();
std::span<const OperationInfo> indexing_operations();
std::span<const OperationInfo> linear_operations();
std::span<const OperationInfo> loss_operations();
std::span<const OperationInfo> normalization_operations();
std::span<const OperationInfo> padding_operations();
std::span<const OperationInfo> pooling_operations();
std::span<const OperationInfo> random_operations();
std::span<const OperationInfo> reduction_operations();
std::span<const OperationInfo> resampling_operations();
std::span<const OperationInfo> shape_operations();
std::span<const OperationInfo> sharding_operations();

}  // namespace cohort::record::stablehlo
