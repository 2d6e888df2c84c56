#include "wings/xla/record/operations.h"

#include <unordered_map>

#include "wings/xla/record/stablehlo/families.h"

namespace cohort::record {

std::vector<std::span<const OperationInfo>> all_operations() {
  return {
      stablehlo::activation_operations(),    stablehlo::convolution_operations(), stablehlo::elementwise_operations(),
      stablehlo::indexing_operations(),      stablehlo::linear_operations(),      stablehlo::loss_operations(),
      stablehlo::normalization_operations(), stablehlo::padding_operations(),     stablehlo::pooling_operations(),
      stablehlo::random_operations(),        stablehlo::reduction_operations(),   stablehlo::shape_operations(),
      stablehlo::resampling_operations(),    stablehlo::sharding_operations()};
}

const OperationInfo* find_operation(const std::string& name) {
  static const std::unordered_map<std::string, const OperationInfo*> table = [] {
    std::unordered_map<std::string, const OperationInfo*> rows;
    for (const auto family : all_operations()) {
      for (const OperationInfo& row : family) rows.emplace(row.name, &row);
    }
    return rows;
  }();
  const auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

}  // namespace cohort::record
