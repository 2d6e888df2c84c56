// GraphSet: the graphs of all replicas of a process that were captured with one exchange of gradients in them. Each
// device waits for the others within its graph, so none gets its own before the threads of all have come to give
// theirs, and no thread goes on before all have: what a thread does beside a device that waits may have to wait for it.
//
// Replicas on one device give it their graphs one after the other. The last one adds up what all of them have, and
// updates all of them.
#pragma once

#include <torch/types.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collective/devices/sums_beside.h"
#include "strategy/core.h"
#include "wings/function/device/graph_capture.h"
#include "wings/function/device/point_to_come.h"
#include "wings/function/step/graph_agreement.h"

namespace cohort {

class GraphSet : public std::enable_shared_from_this<GraphSet> {
 public:
  // `what` names the sums in errors. `places` are the replicas' devices.
  GraphSet(StrategyCore& core, std::shared_ptr<SumsBeside> sums, std::shared_ptr<GraphAgreement> agreement,
           DevicePlaces places, std::string what);
  GraphSet(const GraphSet&) = delete;
  GraphSet& operator=(const GraphSet&) = delete;

  // Returns the company of a replica's graph, which has to live as long as the graph. `used` are tensors of its capture
  // that another replica's graph uses.
  std::shared_ptr<const GraphCompany> company_of(int local_id, std::vector<torch::Tensor> used);

 private:
  struct alignas(64) Own {
    std::shared_ptr<PointToCome> begun;
    std::shared_ptr<PointToCome> ended;
    std::vector<torch::Tensor> used;
  };

  void launch(int local_id, const std::function<void()>& replay);
  void launch_in_order(std::size_t me, const std::function<void()>& give);
  void watch() const;

  StrategyCore& core_;  // outlives the runs of the graphs
  std::shared_ptr<SumsBeside> sums_;
  std::shared_ptr<GraphAgreement> agreement_;
  DevicePlaces places_;
  std::string what_;
  std::vector<Own> own_;  // [replica]
  std::atomic<bool> is_whole_ = true;
};

}  // namespace cohort
