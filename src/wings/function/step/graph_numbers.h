// GraphNumbers: the numbers of a replica's steps that change from one to the next (scale of the loss, rate,
// corrections), in its device's memory, where steps that are captured as graphs read them. The host writes them before
// each run.
//
// With a loss scale the numbers depend on whether the last step has updated, which the host does not wait for. So it
// writes two rows, for either answer, and the graph takes the one for what the device knows.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "wings/function/device/graph_capture.h"

namespace cohort {

// One thread at a time.
class GraphNumbers {
 public:
  // `size` numbers of a row; with `may_leave_out` steps may leave the parameters as they are.
  GraphNumbers(int64_t size, torch::Device device, bool may_leave_out);

  // Writes the numbers of the next run, behind what the calling thread has given the device: one row, or those for a
  // last step that was left out and for one that has updated.
  void write(const std::vector<std::vector<double>>& rows) const;

  // Takes notice, on the device, of whether a step has updated: a boolean there. Nothing for an undefined one.
  void note(const torch::Tensor& updated) const;

  // Returns the row of a step that is being captured, as every run has it; `write` is called before each. It is the
  // same row until end(). A step behind another one in the same segment begins a segment of its own.
  torch::Tensor read(GraphCapture& capture, const HostStage& write);
  // The step's update has been captured.
  void end(const GraphCapture& capture);

 private:
  torch::Tensor rows_;     // [2, size]: left out, updated
  torch::Tensor updated_;  // whether the last step has updated; undefined: all do
  // The step that is being captured, or was captured last.
  std::weak_ptr<const void> capture_;
  std::size_t segment_ = 0;  // the one in which it was last
  torch::Tensor row_;        // undefined behind end()
};

}  // namespace cohort
