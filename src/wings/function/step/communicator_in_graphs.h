// CommunicatorInGraphs: captures the steps of the exchange by messages as graphs of devices.
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "optimizer/update_rule.h"
#include "step/exchange/communicator.h"
#include "step/verdict.h"
#include "wings/function/device/graph_capture.h"
#include "wings/function/step/buckets_in_graphs.h"
#include "wings/function/step/graph_agreement.h"

namespace cohort {

class CommunicatorInGraphs {
 public:
  explicit CommunicatorInGraphs(CommunicatorExchange& exchange);

  // Returns that of an exchange; null: what the exchange does cannot be captured.
  static CommunicatorInGraphs* of(const Exchange& exchange);

  // Does ExchangeInGraphs::come().
  void come(int local_id);

  // Returns the numbers of an update of a replica that a captured one reads from the device's memory. Nothing: what the
  // exchange does cannot be captured, and the host does it in each run.
  std::optional<std::vector<double>> graph_numbers(int local_id, const StepContext& context) const;

  struct CapturedStep {
    const std::vector<torch::Tensor>& gradients;  // as Exchange::step() has them
    bool reduced;
    const StepContext& context;
    torch::Tensor numbers;  // those of graph_numbers(), of each run
    // To be called with the verdict, within a capture of the device, behind the update.
    std::function<void(const Verdict& verdict)> note;
    std::weak_ptr<const void> owner;  // lives for what the host does in a run
  };
  // Captures what Exchange::step() does, for which graph_numbers() has to have some: each run makes the verdict anew
  // (Verdict::of_runs). Where all replicas capture, and their devices can add up within graphs, the exchange is a part
  // of these; else it is one of the host's.
  Verdict step_in_graph(GraphCapture& capture, Replica& replica, const CapturedStep& step);

 private:
  bool all_capture(const GraphCapture& capture, int me);

  CommunicatorExchange& exchange_;
  std::shared_ptr<GraphAgreement> agreement_;
  std::unique_ptr<BucketsInGraphs> buckets_;  // null: they cannot be added up within graphs
};

ExchangeInGraphs make_communicator_in_graphs(CommunicatorExchange& exchange);

}  // namespace cohort
