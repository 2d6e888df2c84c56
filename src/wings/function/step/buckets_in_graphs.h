// BucketsInGraphs: the sums of gradients, and the update, within graphs that all replicas capture together.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "collective/devices/sums_beside.h"
#include "step/exchange/device_buckets.h"
#include "strategy/core.h"
#include "wings/function/device/graph_capture.h"
#include "wings/function/step/graph_agreement.h"

namespace cohort {

class BucketsInGraphs {
 public:
  // The sums of `buckets` have to fit graphs.
  BucketsInGraphs(StrategyCore& core, DeviceBuckets& buckets, std::shared_ptr<GraphAgreement> agreement);

  // Returns whether the buckets have been planned, before which update() is not there.
  bool is_planned() const { return buckets_.size() > 0; }
  // A collective of the local replicas, which all capture: has their graphs add up what is in the flat gradients, and
  // then do what `act` gives the device, which is called once for each replica, maybe by the thread of another one on
  // the same device. `used` are tensors of this capture that it uses.
  void update(GraphCapture& capture, int local_id, const std::function<void()>& act, std::vector<torch::Tensor> used);

 private:
  // Has what a replica brings to the others while all capture.
  struct Joining;

  void capture_device(std::size_t device);

  StrategyCore& core_;
  DeviceBuckets& buckets_;
  std::shared_ptr<GraphAgreement> agreement_;
  DevicePlaces places_;  // of the replicas
};

}  // namespace cohort
