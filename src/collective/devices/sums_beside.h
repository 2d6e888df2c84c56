// SumsBeside: sums over the replicas of a process, or of several, that go on beside what their devices compute, so that
// gradients of late layers are added up while backward computes those of early ones.
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/side_streams.h"

namespace cohort {

// Thread-safe.
class SumsBeside {
 public:
  // [rank]: the tensors of each rank, contiguous; same shapes and dtypes on all ranks.
  using Tensors = std::vector<std::vector<torch::Tensor>>;
  // [rank]: the points that all have to be waited for before a rank's sums are there.
  using Ends = std::vector<std::vector<PointPtr>>;

  virtual ~SumsBeside() = default;

  // Returns the point behind what the calling thread has given a rank's device.
  virtual PointPtr mark(int rank) const = 0;

  // Begins to add up the tensors of all ranks, in place; ready[r] is the point at which those of rank r are there. The
  // call is made once for all ranks, by any thread, and does not wait for a device. Each rank's order of additions is
  // the same from run to run. `what` names the sum in errors. Throws what an earlier sum has come to grief by. Where
  // there are other processes, all of them begin the same sums in the same order.
  virtual Ends begin(const std::string& what, const Tensors& all, const std::vector<PointPtr>& ready) = 0;

  // Throws what a sum has come to grief by, if one has: DeadlineExceeded, Unavailable.
  virtual void require_well() const = 0;

  // Returns whether sums can be a part of graphs of the devices: whether a device makes those of its ranks without
  // another one, or waits for the others by itself.
  virtual bool fits_graphs() const = 0;
  // Has the calling thread, which captures work of a device, add up in place what the device's ranks have, of[i] being
  // that of the i-th one of them, with what other devices have. One thread calls it for each device, all at the same
  // time and for the same sums. Where fits_graphs() is false: Internal. What it uses has to live as long as the graph.
  virtual void capture(std::size_t device, const Tensors& of) = 0;
  // Takes notice of graphs with such sums that devices are being given, of [device], behind the sums so far: the point
  // at which each has come to its graph, and that at which it has ended it.
  struct Passage {
    PointPtr begun;
    PointPtr ended;
  };
  virtual void watch(const std::string& /*what*/, const std::vector<Passage>& /*graphs*/) {}

  // Agreements with other processes; collectives of them, by one thread of each, while no sum is under way. Alone there
  // is nothing to agree on.
  // Makes a list of numbers, of the same length in all processes, that of the first one.
  virtual void take_first(std::vector<int64_t>& /*numbers*/) {}
  // Throws FailedPrecondition, with both texts, if another process has another one.
  virtual void require_same(const std::string& /*text*/) {}
};

// The devices of some ranks: each device once, and which of them each rank has.
struct DevicePlaces {
  explicit DevicePlaces(const std::vector<torch::Device>& of_ranks) {
    for (const torch::Device device : of_ranks) {
      const auto found = std::find(devices.begin(), devices.end(), device);
      of.push_back(static_cast<std::size_t>(found - devices.begin()));
      if (found == devices.end()) devices.push_back(device);
    }
  }

  // Returns whether some ranks have the same device.
  bool are_shared() const { return devices.size() < of.size(); }
  // Returns the ranks of a device, in their order.
  std::vector<std::size_t> ranks(std::size_t device) const {
    std::vector<std::size_t> list;
    for (std::size_t rank = 0; rank < of.size(); ++rank) {
      if (of[rank] == device) list.push_back(rank);
    }
    return list;
  }

  std::vector<torch::Device> devices;
  std::vector<std::size_t> of;  // [rank]
};

// Makes a stream beside the work of each of these devices. Unimplemented: their back end has none.
std::unique_ptr<SideStreams> streams_beside(const std::vector<torch::Device>& devices);

// Returns the bytes of tensors, as errors name them.
int64_t total_bytes(const std::vector<torch::Tensor>& tensors);

}  // namespace cohort
