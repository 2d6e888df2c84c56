// The table of the sums within a process, and the plain sum that most of them are made of.
#include "collective/algorithms/cross_device_sum.h"

#include <algorithm>
#include <string>

#include "base/fail.h"
#include "collective/algorithms/linked_sum.h"
#include "collective/devices/nccl.h"
#include "device/backend.h"

namespace cohort {

namespace {

bool any_device(const std::vector<torch::Device>&) {
  return true;
}

// Returns whether NCCL has something to do: there are GPUs alone, and different ones. Replicas on one of them are added
// up in its memory.
bool several_gpus(const std::vector<torch::Device>& devices) {
  if (!std::all_of(devices.begin(), devices.end(), is_gpu)) return false;
  return std::any_of(devices.begin(), devices.end(), [&](torch::Device device) { return device != devices.front(); });
}

bool nccl_suits(const std::vector<torch::Device>& devices) {
  return has_nccl() && several_gpus(devices);
}

// Returns whether the ring serves these devices. It reads and writes memory, which recorded tensors do not have.
bool one_kind(const std::vector<torch::Device>& devices) {
  if (devices.front().type() == torch::kXLA) return false;
  return std::all_of(devices.begin(), devices.end(),
                     [&](torch::Device device) { return device.type() == devices.front().type(); });
}

bool on_request(const std::vector<torch::Device>&) {
  return false;
}

struct SumRow {
  std::string_view name;
  bool (*automatic)(const std::vector<torch::Device>&);  // returns whether auto takes it
  CrossDeviceSum (*make)();                              // null: NCCL's
};

constexpr SumRow kTable[] = {
    {"nccl", nccl_suits, nullptr},
    {"ring", one_kind, make_ring},
    {"reduction_to_one_device", any_device, make_reduction_to_one_device},
    {"hierarchical_copy", on_request, make_hierarchical_copy},
};

CrossDeviceSum make_nccl_sum(const std::vector<torch::Device>& devices, std::chrono::milliseconds timeout) {
  if (!has_nccl()) {
    fail_unbuilt("[collective] cross-device ops nccl", "take auto or ring");
  }
  if (!several_gpus(devices)) {
    fail<InvalidArgument>("[collective] cross-device ops nccl: needs replicas on two different GPUs or more, got ",
                          devices);
  }
  return make_linked_sum("nccl", make_nccl_link, timeout);
}

}  // namespace

std::vector<std::string_view> cross_device_sum_names() {
  std::vector<std::string_view> names;
  for (const SumRow& row : kTable) names.push_back(row.name);
  return names;
}

CrossDeviceSum make_cross_device_sum(std::string_view name, const std::vector<torch::Device>& devices,
                                     std::chrono::milliseconds timeout) {
  std::string known = "auto";
  for (const SumRow& row : kTable) {
    if (name == row.name || (name == "auto" && row.automatic(devices))) {
      return row.make == nullptr ? make_nccl_sum(devices, timeout) : row.make();
    }
    known += c10::str(", ", row.name);
  }
  fail<InvalidArgument>("[collective] cross-device ops \"", name, "\" are not known, only ", known, " are");
}

void divide(torch::Tensor& sum, int64_t count) {
  if (count == 1) return;
  if (sum.is_floating_point() || sum.is_complex()) {
    sum.div_(count);
  } else {
    sum.div_(count, "trunc");
  }
}

void add_up_in_first(const SumsBeside::Tensors& ranks) {
  if (ranks.size() == 1) return;
  for (std::size_t i = 0; i < ranks.front().size(); ++i) {
    std::vector<torch::Tensor> sources;
    for (const auto& of_rank : ranks) sources.push_back(of_rank[i]);
    torch::Tensor sum = sources.front();
    reduce_into(sum, sources, ReduceOp::kSum);
  }
}

void copy_from_first(const SumsBeside::Tensors& ranks) {
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    for (std::size_t i = 0; i < ranks[r].size(); ++i) ranks[r][i].copy_(ranks.front()[i]);
  }
}

torch::ScalarType sum_dtype(torch::ScalarType dtype) {
  return dtype == torch::kHalf || dtype == torch::kBFloat16 ? torch::kFloat : dtype;
}

void reduce_into(torch::Tensor& dst, const std::vector<torch::Tensor>& sources, ReduceOp op) {
  const torch::ScalarType dtype = sum_dtype(sources.front().scalar_type());
  torch::Tensor sum = sources.front().to(dst.device(), dtype, /*non_blocking=*/false, /*copy=*/true);
  for (std::size_t i = 1; i < sources.size(); ++i) sum.add_(sources[i].to(dst.device()));
  if (op == ReduceOp::kMean) divide(sum, static_cast<int64_t>(sources.size()));
  dst.copy_(sum);
}

}  // namespace cohort
