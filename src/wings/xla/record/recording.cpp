#include <algorithm>

#include "base/fail.h"
#include "wings/xla/record/cell.h"
#include "wings/xla/record/recorder.h"

namespace cohort::record {

Recording::Recording(int device, ProgramCache& cache) : device_(device), cache_(cache) {}

Recording::~Recording() = default;

std::vector<Recording::Pending> Recording::collect() {
  std::vector<Pending> pending;
  std::set<const Node*> needed;
  for (const auto& [id, cell] : cells_) {
    if (cell->value().node->is_leaf()) needed.insert(cell->value().node.get());
  }
  for (const auto& [id, cell] : cells_) {
    if (cell->value().node->is_leaf()) continue;
    Pending one{cell, cell->value(), cell->placed()};
    // The memory before can be given away only where no tensor has that value any longer.
    if (one.donor != nullptr && needed.contains(one.donor.get())) one.donor = nullptr;
    pending.push_back(std::move(one));
  }
  // What lives from step to step comes first: where it is made on the way, its first step is the same program, too.
  std::stable_partition(pending.begin(), pending.end(),
                        [](const Pending& one) { return one.cell->placed() != nullptr; });
  return pending;
}

std::size_t Recording::pending() const {
  const std::scoped_lock lock(mutex_);
  return static_cast<std::size_t>(std::count_if(
      cells_.begin(), cells_.end(), [](const auto& entry) { return !entry.second->value().node->is_leaf(); }));
}

void Recording::require_running(const std::string& what) const {
  if (!capturing_.empty()) {
    fail<NotRecordable>("[record] ", what, " while ", capturing_,
                        " is recorded: values exist only when the program runs; return the tensor instead");
  }
  if (runner() == nullptr) {
    fail<FailedPrecondition>("[record] ", what, ", but nothing runs what is recorded for xla:", device_,
                             "; open a plugin first");
  }
}

std::shared_ptr<DeviceData> Recording::place_input(GraphRunner& runner, const Value& leaf) const {
  std::shared_ptr<DeviceData> data;
  const auto index = static_cast<std::size_t>(leaf.output);
  if (index < leaf.node->data.size()) data = leaf.node->data[index];
  if (data == nullptr) {
    fail<FailedPrecondition>("[record] the program reads the parameter \"", leaf.node->layer, "\" of ",
                             to_string(leaf.type()), ", which has no value; run it with capture()'s inputs instead");
  }
  if (const auto* host = dynamic_cast<const HostData*>(data.get())) {
    data = runner.place(host->tensor(), device_);
    leaf.node->data[index] = data;
  }
  return data;
}

Recording::Work Recording::prepare() {
  Work work{collect(), {}};
  if (work.pending.empty()) return work;
  require_running("work was to begin");
  std::vector<Value> outputs;
  std::vector<std::shared_ptr<Node>> donors;
  for (const Pending& one : work.pending) {
    outputs.push_back(one.value);
    donors.push_back(one.donor);
  }
  work.captured = record::capture(outputs, donors, cache_);
  return work;
}

std::vector<std::shared_ptr<DeviceData>> Recording::inputs_of(GraphRunner& runner, const Captured& captured) {
  std::vector<std::shared_ptr<DeviceData>> inputs;
  for (const Value& leaf : captured.data) inputs.push_back(place_input(runner, leaf));
  for (std::size_t i = 0; i < captured.scalars.size(); ++i) {
    const std::pair key(captured.program, static_cast<int>(i));
    Numbers* last = numbers_.find(key);
    if (last == nullptr || !last->host.equal(captured.scalars[i])) {
      last = &numbers_.put(key, {captured.scalars[i], runner.place(captured.scalars[i], device_)}, kept_programs());
    }
    inputs.push_back(last->data);
  }
  return inputs;
}

void Recording::finish(const Work& work, const std::vector<std::shared_ptr<DeviceData>>& results) {
  for (std::size_t i = 0; i < work.pending.size(); ++i) {
    Node& node = *work.pending[i].value.node;
    node.data.resize(node.outputs.size());
    node.data[static_cast<std::size_t>(work.pending[i].value.output)] = results.at(i);
  }
  // The nodes are leaves from now on, for whoever refers to them, and give up what they were computed from.
  for (const Pending& one : work.pending) {
    one.value.node->op = kDataOp;
    one.value.node->arguments.clear();
    one.value.node->layer.clear();
  }
  for (const Pending& one : work.pending) one.cell->replace(one.value);
}

void Recording::flush() {
  const std::scoped_lock lock(mutex_);
  const Work work = prepare();
  if (work.pending.empty()) return;
  if (work.captured.program->has_sums()) {
    fail<FailedPrecondition>("[record] the value of a sum over replicas was asked for on xla:", device_,
                             " alone, while the other replicas have not come so far; read values after the step");
  }
  const std::shared_ptr<GraphRunner> runs = runner();
  finish(work, runs->run(work.captured.program, inputs_of(*runs, work.captured), device_));
}

Captured Recording::capture(std::span<const torch::Tensor> outputs, std::span<const Value> donated) {
  std::vector<Value> values;
  for (const torch::Tensor& output : outputs) values.push_back(value_of(output));
  std::vector<std::shared_ptr<Node>> donors;
  for (const Value& value : donated) donors.push_back(value.node);
  if (!donors.empty() && donors.size() != values.size()) {
    fail<InvalidArgument>("[record] capture() got ", donors.size(), " donated values for ", values.size(),
                          " outputs, wanted one for each or none");
  }
  const std::scoped_lock lock(mutex_);
  return record::capture(values, donors, cache_);
}

torch::Tensor Recording::random_state() {
  const std::scoped_lock lock(mutex_);
  if (!random_state_.defined()) {
    const torch::Device device(c10::DeviceType::XLA, static_cast<c10::DeviceIndex>(device_));
    random_state_ = first_state().to(device);
  }
  return random_state_;
}

torch::Tensor Recording::first_state() const {
  return at::tensor(std::vector<int64_t>{static_cast<int64_t>(seed_), 0});
}

void Recording::manual_seed(uint64_t seed) {
  const std::scoped_lock lock(mutex_);
  seed_ = seed;
  if (random_state_.defined()) random_state_.copy_(first_state());
}

Recording::Capturing::Capturing(Recording& recording, std::string what) : recording_(recording) {
  const std::scoped_lock lock(recording.mutex_);
  if (!recording.capturing_.empty()) {
    fail<FailedPrecondition>("[record] ", what, " cannot be recorded while ", recording.capturing_,
                             " is, on the same device");
  }
  recording.capturing_ = std::move(what);
}

Recording::Capturing::~Capturing() {
  const std::scoped_lock lock(recording_.mutex_);
  recording_.capturing_.clear();
}

torch::Tensor fetch(const torch::Tensor& tensor) {
  Recording& recording = cell_of(tensor).recording();
  const std::scoped_lock lock(recording.mutex_);
  if (recording.pending() > 0 || runner() != nullptr) recording.require_running("the value of a tensor was asked for");
  recording.flush();
  // A view of memory that is there may still be an operation: it becomes a tensor of its own, and is computed, too.
  torch::Tensor own = make_tensor(value_of(tensor), tensor.device());
  recording.flush();
  const Value value = value_of(own);
  if (value.node->data.empty()) recording.require_running("the value of a parameter was asked for");
  const auto& data = value.node->data.at(static_cast<std::size_t>(value.output));
  if (const auto* host = dynamic_cast<const HostData*>(data.get())) return host->tensor().clone();
  return runner()->fetch(*data, value.type());
}

}  // namespace cohort::record
