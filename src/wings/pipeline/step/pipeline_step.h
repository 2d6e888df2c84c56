// PipelineStep: the steps of an optimizer under a pipeline. The schedule makes the backward passes of all microbatches,
// and then there is one update. Where the stages lie in several processes it finds out who has which parameters.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "step/step_in_parts.h"
#include "strategy/replica_scope.h"

namespace cohort {

class PipelineStep final : public StepInParts {
 public:
  void laid_out(Step& step) override;
  void minimize(Step& step, ReplicaScope& scope, const Replica& replica, const torch::Tensor& loss) override;

 private:
  // A parameter that several processes of a line have. Its gradients are added up over the line, in which others take
  // part with zeros.
  struct Shared {
    std::optional<std::size_t> parameter;  // its number here
    torch::ScalarType dtype = torch::kFloat;
    std::vector<int64_t> sizes;
  };

  // Leaves this process the parameters that its stages have used.
  void place(Step& step, const std::vector<const TensorsUsed*>& used);
  // Takes sums of this process's chunks to those of the parameters that it has.
  std::vector<torch::Tensor> over_stages(const Step& step, const Replica& replica,
                                         std::vector<torch::Tensor> sums) const;
  void update(Step& step, Replica& replica, std::vector<torch::Tensor> sums) const;

  bool placed_ = true;  // it is known what the stages use, and each process has what it keeps
  std::vector<Shared> shared_;
  // The numbers that the parameters had before they were placed, for sums of the step that did it.
  std::vector<std::size_t> kept_;
};

}  // namespace cohort
