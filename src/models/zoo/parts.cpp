#include "models/zoo/parts.h"

#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>

#include <algorithm>

#include "base/fail.h"
#include "cohort/replica.h"
#include "strategy/divided.h"

namespace cohort::models {

torch::Tensor drop(const torch::Tensor& x, double probability, at::IntArrayRef shape) {
  torch::Tensor mask;
  {
    const torch::NoGradGuard no_grad;
    mask = at::empty(shape, x.options());
    Replica* replica = Replica::current();
    const bool own = replica != nullptr && replica->device().type() == x.device().type();
    own ? mask.bernoulli_(1.0 - probability, replica->generator()) : mask.bernoulli_(1.0 - probability);
    if (probability < 1.0) mask.mul_(1.0 / (1.0 - probability));
  }
  return x * mask;
}

torch::Tensor drop_part(const torch::Tensor& x, double probability, const std::string& axis, int64_t dim) {
  if (axis.empty()) return drop(x, probability, x.sizes());
  torch::Tensor mask;
  {
    const torch::NoGradGuard no_grad;
    std::vector<int64_t> whole = x.sizes().vec();
    whole[static_cast<std::size_t>(dim)] *= Replica::current()->group(axis).size();
    mask = part_along(drop(at::ones(whole, x.options()), probability, whole), axis, dim);
  }
  return x * mask;
}

// Outside of run() the first operation along the axis says so. A share without examples has no parts.
torch::Tensor in_positions(const torch::Tensor& x, const std::string& axis) {
  const Replica* replica = Replica::current();
  if (axis.empty() || replica == nullptr || x.numel() == 0) return x;
  Communicator& line = replica->group(axis);
  return divided_along(x, {1, line.size(), 1}, line);
}

torch::Tensor sum_like(const torch::Tensor& x, const torch::Tensor& term, const std::string& axis) {
  const DividedTensor* const divided = DividedTensor::of(x);
  return divided == nullptr ? sum_along(term, axis) : divided->sum(term);
}

std::string require_cuts(const char* model, const ParameterCuts& cuts, ParameterCuts wanted) {
  const ParameterAxes& first = cuts.begin()->second;
  std::string axis = *std::find_if(first.begin(), first.end(), [](const auto& each) { return !each.empty(); });
  std::vector<std::string> came, fits;
  const auto text = [](const auto& item) {
    return c10::str(item.first, " {\"", c10::Join("\", \"", item.second), "\"}");
  };
  for (auto& item : wanted) {
    std::replace(item.second.begin(), item.second.end(), std::string("*"), axis);
    fits.push_back(text(item));
  }
  if (cuts == wanted) return axis;
  for (const auto& item : cuts) came.push_back(text(item));
  fail<InvalidArgument>("[models] ", model, ": the layout cuts ", c10::Join(", ", came), ", wanted ",
                        c10::Join(", ", fits), ", all together");
}

void require_heads(const char* model, const char* what, int64_t heads, const std::string& axis,
                   const Topology& topology) {
  const int parts = topology.axis(axis).size;
  if (heads % parts == 0) return;
  std::vector<int64_t> fits;
  for (int64_t size = 1; size <= heads; ++size) {
    if (heads % size == 0) fits.push_back(size);
  }
  fail<InvalidArgument>("[models] ", model, ": ", what, " is ", heads, ", which ", parts, " replicas along \"", axis,
                        "\" do not divide; sizes of the axis that would: ", c10::Join(", ", fits));
}

}  // namespace cohort::models
