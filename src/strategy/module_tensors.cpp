#include "strategy/module_tensors.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <unordered_map>

#include "base/fail.h"
#include "device/identity.h"
#include "strategy/absent.h"

namespace cohort {

namespace {

template <typename Named>
std::vector<ModuleTensor> distinct(const Named& named) {
  std::vector<ModuleTensor> list;
  std::unordered_map<const void*, std::size_t> seen;
  for (const auto& item : named) {
    const auto [found, is_new] = seen.emplace(tensor_id(item.value()), list.size());
    if (is_new) {
      list.push_back({.name = item.key(), .tensor = item.value(), .aliases = {}});
    } else {
      list[found->second].aliases.push_back(item.key());
    }
  }
  return list;
}

// A tensor and the bytes between its first and its last element.
struct TensorExtent {
  const ModuleTensor* of = nullptr;
  const char* kind = nullptr;
  MemoryRange range;
};

void add_extents(std::vector<TensorExtent>& extents, const std::vector<ModuleTensor>& tensors, const char* kind) {
  for (const ModuleTensor& each : tensors) {
    if (is_absent(each.tensor)) continue;
    if (const auto range = memory_range(each.tensor)) extents.push_back({.of = &each, .kind = kind, .range = *range});
  }
}

// Returns whether two tensors whose extents overlap have an element in common. Columns of one matrix have none.
bool have_common_element(const TensorExtent& first, const TensorExtent& second) {
  const torch::Tensor& a = first.of->tensor;
  const torch::Tensor& b = second.of->tensor;
  if (a.device() != b.device()) return false;
  if (a.is_contiguous() && b.is_contiguous()) return true;
  const auto item = static_cast<int64_t>(a.element_size());
  const int64_t distance = second.range.begin - first.range.begin;
  if (b.element_size() != a.element_size() || distance % item != 0) return true;
  const auto places = [](const torch::Tensor& tensor, int64_t begin) {
    return at::arange(begin, begin + elements_spanned(tensor), torch::kLong)
        .as_strided(tensor.sizes(), tensor.strides());
  };
  return at::isin(places(b, distance / item).reshape({-1}), places(a, 0).reshape({-1})).any().item<bool>();
}

[[noreturn]] void refuse(const TensorExtent& first, const TensorExtent& second) {
  fail<InvalidArgument>("[strategy] the ", first.kind, " ", first.of->name, " and the ", second.kind, " ",
                        second.of->name,
                        " share memory but are not the same parameter; to tie two parameters, register the very same ",
                        "tensor under both names, otherwise clone() one of them");
}

}  // namespace

std::vector<ModuleTensor> distinct_parameters(const torch::nn::Module& module) {
  return distinct(module.named_parameters());
}

std::vector<ModuleTensor> distinct_buffers(const torch::nn::Module& module) {
  return distinct(module.named_buffers());
}

void require_apart(const torch::nn::Module& module) {
  const std::vector<ModuleTensor> parameters = distinct_parameters(module);
  const std::vector<ModuleTensor> buffers = distinct_buffers(module);
  std::vector<TensorExtent> extents;
  add_extents(extents, parameters, "parameter");
  add_extents(extents, buffers, "buffer");
  std::stable_sort(extents.begin(), extents.end(),
                   [](const TensorExtent& a, const TensorExtent& b) { return a.range.begin < b.range.begin; });
  std::vector<const TensorExtent*> open;  // those that reach beyond the beginning of the current one
  for (const TensorExtent& each : extents) {
    std::erase_if(open, [&](const TensorExtent* before) { return before->range.end <= each.range.begin; });
    for (const TensorExtent* before : open) {
      if (!before->of->tensor.requires_grad() && !each.of->tensor.requires_grad()) continue;
      if (have_common_element(*before, each)) refuse(*before, each);
    }
    open.push_back(&each);
  }
}

}  // namespace cohort
