// The loops of fit(), evaluate() and predict().
#pragma once

#include "cohort/model.h"
#include "train/model/model_state.h"
#include "train/model/progress_bar.h"

namespace cohort {

struct EvaluationRun {
  std::string title = {};  // of the progress
  int64_t steps = 0;       // 0: all
  const std::vector<CallbackPtr>* callbacks = nullptr;
  ProgressBar* progress = nullptr;  // null: not shown
  RunInfo* run = nullptr;
  std::function<bool()> interrupt = {};  // asked before every batch; true on any worker ends it on all
};

// One pass over the data in evaluation mode; nullopt when it was interrupted. InvalidArgument when there is none.
std::optional<Logs> evaluate_on(ModelState& state, const DistributedDataset& data, const EvaluationRun& evaluation);

History run_fit(Model& model, ModelState& state, const Dataset& data, const FitOptions& options);

torch::Tensor run_predict(ModelState& state, const Dataset& data, const PredictOptions& options);

}  // namespace cohort
