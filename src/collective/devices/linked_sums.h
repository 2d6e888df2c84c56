// LinkedSums: collectives of a process's devices over what joins them (NCCL), which does the work by itself when it is
// told to for all devices at once. Ranks on one device are added up in its memory before that, and one of them speaks
// for the device.
#pragma once

#include <torch/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "collective/devices/sums_beside.h"
#include "collective/devices/watch.h"

namespace cohort {

// What joins the devices of a process. One thread at a time, but for join(), error() and abort(). Tensors are
// contiguous and on the devices in the order in which these were given, and so are streams.
class DeviceLink {
 public:
  virtual ~DeviceLink() = default;

  virtual std::string_view name() const = 0;
  // Begins to add up what the devices have, in place, on their streams; tensors[d] are those of device d.
  virtual void all_reduce(SideStreams& streams, const SumsBeside::Tensors& tensors) = 0;
  // Does the same on the current stream of the calling thread, in a capture of it or not: each device has a thread that
  // calls it with its tensors, all at the same time, without that being seen to here.
  virtual void join(std::size_t device, const std::vector<torch::Tensor>& tensors) = 0;
  // Begins to give every device the tensors of all: whole[d] has room for those of each device, one after the other.
  virtual void all_gather(SideStreams& streams, const std::vector<torch::Tensor>& own,
                          const std::vector<torch::Tensor>& whole) = 0;
  // Returns what has gone wrong since the link was made; empty: nothing.
  virtual std::string error() = 0;
  // Ends what is under way; nothing may follow.
  virtual void abort() noexcept = 0;
};

// Makes the link of different devices, at least two.
using MakeLink = std::function<std::unique_ptr<DeviceLink>(const std::vector<torch::Device>& devices)>;

class LinkedSums final : public SumsBeside {
 public:
  // Watched by the deadline. Unimplemented: the back end of the devices has no side streams.
  LinkedSums(const std::vector<torch::Device>& of_ranks, const MakeLink& make, std::chrono::milliseconds timeout);
  LinkedSums(const LinkedSums&) = delete;
  LinkedSums& operator=(const LinkedSums&) = delete;
  ~LinkedSums() override;

  PointPtr mark(int rank) const override;
  Ends begin(const std::string& what, const Tensors& all, const std::vector<PointPtr>& ready) override;
  void require_well() const override { watch_.require_well(); }
  bool fits_graphs() const override { return true; }
  void capture(std::size_t device, const Tensors& of) override;
  void watch(const std::string& what, const std::vector<Passage>& graphs) override;

  // Returns whether all_gather() is there: each rank has a device of its own.
  bool gathers() const { return link_ != nullptr && places_.devices.size() == places_.of.size(); }
  // Begins to gather own[rank], of the same shape on all ranks, in whole[rank], on the rank's device.
  Ends all_gather(const std::string& what, const std::vector<torch::Tensor>& own,
                  const std::vector<torch::Tensor>& whole, const std::vector<PointPtr>& ready);

  const FlightRecorder& recorder() const { return watch_.recorder(); }

 private:
  // Makes every device's stream wait for its ranks, and notes where it has come to.
  std::vector<PointPtr> follow(const std::vector<PointPtr>& ready);
  // Has the watch see to a collective that has begun.
  Ends end(const std::string& what, const std::vector<PointPtr>& begun);
  // Begins work on the tensors of each device that several ranks have.
  void on_devices(const Tensors& all, void (*work)(const Tensors& ranks));
  void abort() noexcept;

  DevicePlaces places_;
  std::vector<std::vector<std::size_t>> ranks_;  // [device]: its ranks, of which the first one speaks for it
  std::vector<std::string> who_;                 // [device]: as errors name it
  std::unique_ptr<DeviceLink> link_;             // null: there is one device
  std::unique_ptr<SideStreams> streams_;
  std::timed_mutex mutex_;  // of those who begin something
  CollectiveWatch watch_;   // the last member: it uses the others
};

}  // namespace cohort
