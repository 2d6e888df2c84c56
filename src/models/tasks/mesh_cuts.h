// What tasks refuse of the cuts that a mesh may make.
#pragma once

#include <string>

#include "base/fail.h"
#include "cohort/models/experiment.h"
#include "strategy/combinations.h"

namespace cohort {

// InvalidArgument: the hidden layers of a transformer are to be cut by an option, which an axis always does.
inline void require_whole_mlps(const std::string& axis, const MeshCuts& cuts) {
  if (!cuts.mlps) return;
  fail<InvalidArgument>("[task] --mlp_parallel=true is for recommenders, whose dense layers are whole without it; \"",
                        axis, "\" divides the hidden layers of a transformer in any case");
}

// Fails with InvalidArgument, because the model has no tokens that an axis of sequences could divide.
[[noreturn]] inline void refuse_sequence(const std::string& axis, const char* why, const char* what_fits) {
  fail<InvalidArgument>("[task] the axis \"", axis, "\" of --mesh divides the tokens of language models, but ", why,
                        "; ", what_fits);
}

// Unimplemented: blocks are to be computed again in a pipeline.
inline void require_kept_blocks(bool remat) {
  if (!remat) return;
  require_pair("[task]", {.feature = kRecomputed, .said = "task.model.remat is true"},
               {.feature = kPipeline, .said = "an axis of stages in --mesh makes a pipeline"});
}

}  // namespace cohort
