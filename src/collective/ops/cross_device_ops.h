// CrossDeviceOps: the ways to make a sum of the replicas' tensors known to all of them, chosen by name.
#pragma once

#include <torch/types.h>

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "cohort/communicator.h"
#include "collective/local/rendezvous.h"

namespace cohort {

// The tensors of every rank: all[r][i] is tensor i of rank r. Contiguous; same shapes and dtypes on all ranks.
using RankTensors = std::span<const std::span<torch::Tensor>>;

class CrossDeviceOps {
 public:
  virtual ~CrossDeviceOps() = default;

  virtual std::string_view name() const = 0;

  // Called by every rank, between its arrive() and depart(): reduces the tensors of all ranks, in place. Adds in rank
  // order (hierarchical_copy: in the order of its tree), so the result does not depend on timing.
  virtual void all_reduce(Rendezvous& meeting, int rank, RankTensors all, ReduceOp op) const = 0;
};

// By name: reduction_to_one_device, hierarchical_copy, ring, nccl, or auto, which takes the first of the table that
// suits the devices. An unknown name: InvalidArgument naming the known ones; nccl without NCCL: Unimplemented.
std::unique_ptr<CrossDeviceOps> make_cross_device_ops(std::string_view name, const std::vector<torch::Device>& devices);

std::unique_ptr<CrossDeviceOps> make_reduction_to_one_device();
std::unique_ptr<CrossDeviceOps> make_hierarchical_copy();
std::unique_ptr<CrossDeviceOps> make_ring();
std::unique_ptr<CrossDeviceOps> make_nccl();  // nccl.cpp or no_nccl.cpp
bool has_nccl();

// dst = what the sources add up to in their order (their mean for kMean), elementwise; dst may be one of them. Any
// devices.
void reduce_into(torch::Tensor& dst, const std::vector<torch::Tensor>& sources, ReduceOp op);

// Divides a sum in place, integers towards zero.
void divide(torch::Tensor& sum, int64_t count);

}  // namespace cohort
