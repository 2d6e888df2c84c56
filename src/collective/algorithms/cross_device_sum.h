// CrossDeviceSum: the ways to make a sum of the replicas' tensors known to all replicas of a process, chosen by name.
#pragma once

#include <torch/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "cohort/communicator.h"
#include "collective/devices/sums_beside.h"
#include "collective/local/rendezvous.h"

namespace cohort {

// The tensors of every rank: all[r][i] is tensor i of rank r. Contiguous; same shapes and dtypes on all ranks.
using RankTensors = std::span<const std::span<torch::Tensor>>;

// A way to sum. Each group has one of its own, which keeps what the operation in progress needs.
struct CrossDeviceSum {
  std::string_view name;

  // Called by every rank, between its arrive() and depart(): reduces the tensors of all ranks, in place. Adds in rank
  // order (hierarchical_copy: in the order of its tree), so the result does not depend on timing.
  std::function<void(Rendezvous& meeting, int rank, RankTensors all, ReduceOp op)> all_reduce;

  // Computes dst as the sources, one of each rank, reduced to the same bits as all_reduce does, on any devices.
  std::function<void(torch::Tensor& dst, const std::vector<torch::Tensor>& sources, ReduceOp op)> reduce;

  // Called as all_reduce is, with a contiguous tensor of the same shape on all ranks: returns those of all, in rank
  // order, on the rank's device, or nothing if it cannot. Without it they are copied.
  std::function<std::vector<torch::Tensor>(Rendezvous& meeting, int rank, RankTensors all)> all_gather = {};

  // Returns sums of the same kind that go on beside what these devices, those of the ranks, compute; null, or without
  // this function: there are none.
  std::function<std::shared_ptr<SumsBeside>(const std::vector<torch::Device>& of_ranks)> beside = {};

  // Makes one of the same kind for another group. Without it there is nothing that groups could not share.
  std::function<CrossDeviceSum()> of_new_group = {};
};

// Returns the names of the table.
std::vector<std::string_view> cross_device_sum_names();

// Returns the sum of this name: reduction_to_one_device, hierarchical_copy, ring, nccl, or auto, which takes the first
// of the table that suits the devices. `timeout`: the longest time of a sum that no rank waits for. An unknown name:
// InvalidArgument naming the known ones; nccl without NCCL: Unimplemented.
CrossDeviceSum make_cross_device_sum(std::string_view name, const std::vector<torch::Device>& devices,
                                     std::chrono::milliseconds timeout = std::chrono::minutes(10));

CrossDeviceSum make_reduction_to_one_device();
CrossDeviceSum make_hierarchical_copy();
CrossDeviceSum make_ring();

// Computes dst as the sum of the sources in their order (their mean for kMean), elementwise, on any devices; dst may be
// one of them.
void reduce_into(torch::Tensor& dst, const std::vector<torch::Tensor>& sources, ReduceOp op);

// Adds up the tensors of ranks that share a device: ranks[r][i] is tensor i of rank r. The sums are those of the first
// one; copy_from_first() gives them to the others.
void add_up_in_first(const SumsBeside::Tensors& ranks);
void copy_from_first(const SumsBeside::Tensors& ranks);

// Returns the dtype in which tensors are added up: float32 for half types, in which each addition would round.
torch::ScalarType sum_dtype(torch::ScalarType dtype);

// Divides a sum in place, integers towards zero.
void divide(torch::Tensor& sum, int64_t count);

}  // namespace cohort
