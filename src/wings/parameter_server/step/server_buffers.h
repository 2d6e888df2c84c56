// ServerBuffers: a module's buffers (batch-norm statistics and others) where its parameters are kept by other
// processes. They are variables there, which every step changes by what it has changed here: no worker's part is lost.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "cohort/mirrored.h"
#include "strategy/remote_variables.h"

namespace cohort {

class ServerBuffers {
 public:
  // Declares them as "<prefix>buffers/<name>".
  ServerBuffers(MirroredModule module, RemoteVariables& remote, const std::string& prefix);

  // Returns what the replicas have changed since the values were last spread: floating-point buffers by the mean over
  // the replicas and over all processes that share the step, others by the first of them.
  std::vector<RemoteVariables::Change> changes() const;
  // Gives a replica's copy the values as they were read.
  void spread(int replica) const;
  // Makes this process's values those of its copies.
  void gather() const;

 private:
  torch::Tensor current(std::size_t buffer) const;

  MirroredModule module_;
  RemoteVariables& remote_;
  std::vector<std::vector<torch::Tensor>> copies_;  // [buffer][replica]
  std::vector<torch::Tensor> values_;               // as they were read
  std::vector<std::size_t> variables_;
};

}  // namespace cohort
