#include "cohort/cluster/per_worker_dataset.h"

#include "base/fail.h"
#include "cohort/dataset.h"
#include "wings/parameter_server/state.h"

namespace cohort {

class PerWorkerSource {
 public:
  PerWorkerSource(std::function<Dataset(const InputContext&)> make, InputContext context, TaskId task)
      : make_(std::move(make)), context_(context), task_(std::move(task)) {}

  std::optional<Example> next() {
    if (task_.type != "worker") {
      fail<FailedPrecondition>("[parameter server] a per-worker dataset is read by the workers' steps, not by ",
                               task_.to_string());
    }
    if (!dataset_) dataset_.emplace(make_(context_));
    if (!iterator_) iterator_.emplace(dataset_->iterator({.epoch = epoch_++}));
    std::optional<Example> element = iterator_->next();
    if (!element) iterator_.reset();
    return element;
  }

 private:
  std::function<Dataset(const InputContext&)> make_;
  InputContext context_;
  TaskId task_;
  std::optional<Dataset> dataset_;
  std::optional<Iterator> iterator_;
  int64_t epoch_ = 0;
};

std::optional<Example> PerWorkerDataset::next() const {
  if (!source_) fail<FailedPrecondition>("[parameter server] this per-worker dataset is empty; a strategy makes them");
  return source_->next();
}

PerWorkerDataset ParameterServerStrategy::create_per_worker_dataset(
    std::function<Dataset(const InputContext&)> make) const {
  if (!make) fail<InvalidArgument>("[strategy] create_per_worker_dataset: the function is empty");
  const TaskId& task = state_->task();
  // Workers that the cluster does not name are counted after the others.
  const int workers = std::max(state_->cluster().num_tasks("worker"), task.type == "worker" ? task.index + 1 : 0);
  InputContext context = input_context();
  context.num_input_pipelines = workers;
  context.input_pipeline_id = task.type == "worker" ? task.index : 0;
  return PerWorkerDataset(std::make_shared<PerWorkerSource>(std::move(make), context, task));
}

}  // namespace cohort
