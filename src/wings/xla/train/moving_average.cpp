#include "wings/xla/train/moving_average.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "wings/xla/record/function_recording.h"

namespace cohort {

// All averages have the same number; it is recorded again with one of each dtype.
bool record_average(const AverageUpdate& update) {
  if (!record::FunctionRecording::is_tracing()) return false;
  std::vector<torch::Tensor> kinds;
  std::vector<std::size_t> kind_of;
  for (const auto& average : update.averages) {
    const torch::ScalarType dtype = average.second.scalar_type();
    const auto same = [dtype](const torch::Tensor& kind) { return kind.scalar_type() == dtype; };
    const auto kind = std::find_if(kinds.begin(), kinds.end(), same);
    kind_of.push_back(static_cast<std::size_t>(kind - kinds.begin()));
    if (kind == kinds.end()) kinds.push_back(average.second);
  }
  std::vector<std::pair<torch::ScalarType, torch::Device>> places;
  for (const torch::Tensor& kind : kinds) places.emplace_back(kind.scalar_type(), kind.device());
  const auto again = [weight = update.weight, places, kind_of]() -> std::optional<record::HostPart::Again> {
    const std::optional<double> part = weight();
    if (!part) return std::nullopt;
    record::HostPart::Again recorded;
    for (const auto& [dtype, device] : places) {
      torch::Tensor average = record::make_parameter({dtype, {}}, device);
      recorded.written.push_back(average.lerp_(record::make_parameter({dtype, {}}, device), *part));
    }
    if (record::LiftedNumbers::count_here() == places.size()) recorded.numbers = kind_of;
    return recorded;
  };
  record::FunctionRecording::add_part(update.add, {.again = again, .undo = [] {}});
  return true;
}

}  // namespace cohort
