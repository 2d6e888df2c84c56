// ExchangeInGraphs: what an exchange does of which steps can be captured as graphs of devices.
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/replica.h"
#include "optimizer/update_rule.h"
#include "step/verdict.h"

namespace cohort {

class GraphCapture;

class ExchangeInGraphs {
 public:
  virtual ~ExchangeInGraphs() = default;

  // Returns the numbers of an update of a replica that a captured one reads from the device's memory. Nothing: what the
  // exchange does cannot be captured, and the host does it in each run.
  virtual std::optional<std::vector<double>> graph_numbers(int local_id, const StepContext& context) const = 0;

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
  virtual Verdict step_in_graph(GraphCapture& capture, Replica& replica, const CapturedStep& step) = 0;
};

}  // namespace cohort
