// Every tensor from before the recording that is read or written gets a value that stands for whatever it will have at
// a run: so the program knows it from all others, even from one that has the same value now.
#include "wings/xla/record/function_recording.h"

#include <torch/csrc/autograd/graph_task.h>

#include <unordered_set>

#include "base/fail.h"
#include "wings/xla/record/backward.h"

namespace cohort::record {

namespace {

thread_local const Recording* traced_here = nullptr;

TensorType tensor_type(const torch::Tensor& tensor) {
  return {tensor.scalar_type(), tensor.sizes().vec()};
}

}  // namespace

struct FunctionRecording::Outputs {
  std::vector<Value> values;
  std::vector<std::shared_ptr<Node>> donors;
  void add(const Value& value, std::shared_ptr<Node> donor = nullptr) {
    values.push_back(value);
    donors.push_back(std::move(donor));
  }
};

void Recording::note_use(Cell& cell) {
  if (traced_here != nullptr && traced_here != this) {
    fail<NotRecordable>("[record] ", traced_here->capturing_, " uses a tensor of xla:", device_,
                        " while it is recorded for xla:", traced_here->device_,
                        "; a function is recorded on one device");
  }
  if (trace_ != nullptr) trace_->touch(cell);
}

// LibTorch's thread of the device runs the function's backward. Other threads bring the input of the next steps.
bool Recording::is_traced_here() const {
  if (trace_ == nullptr) return false;
  return traced_here == this || torch::autograd::get_current_graph_task_exec_info() != nullptr;
}

void FunctionRecording::note_tensor(const Cell& cell, const torch::Tensor& tensor) {
  if (traced_here == nullptr || !tensor.requires_grad() || !tensor.is_leaf()) return;
  FunctionRecording& own = *traced_here->trace_;
  if (cell.id() >= own.first_ || own.leaves_.contains(tensor.unsafeGetTensorImpl())) return;
  own.leaves_.emplace(tensor.unsafeGetTensorImpl(),
                      Plan::Leaf{c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()),
                                 gradient_of(tensor), std::nullopt});
}

bool FunctionRecording::is_tracing() {
  return traced_here != nullptr;
}

torch::Device FunctionRecording::traced_device() const {
  return {torch::kXLA, static_cast<c10::DeviceIndex>(recording_.device())};
}

std::optional<torch::Device> FunctionRecording::device_of_trace() {
  if (traced_here == nullptr) return std::nullopt;
  return traced_here->trace_->traced_device();
}

FunctionRecording::FunctionRecording(Recording& recording, std::string what, const StepEngine* steps)
    : recording_(recording), what_(std::move(what)), steps_(steps), capturing_(recording, what_) {
  const std::scoped_lock lock(recording_.mutex_);
  (void)recording_.random_state();  // it is not the function that makes it
  bystander_ = make_parameter({torch::kFloat, {}}, traced_device());
  first_ = recording_.next_cell_;
  sums_ = recording_.sums_.size();
  recording_.trace_ = this;
  traced_here = &recording_;
  make_current(this);
}

FunctionRecording::~FunctionRecording() {
  const std::scoped_lock lock(recording_.mutex_);
  if (recording_.trace_ != this) return;
  Plan failed(recording_, what_);
  Outputs outputs;
  note_arguments(failed, outputs);
  note_captives(failed, outputs);
  note_left(failed, outputs);
  put_back();
  failed.settle_left_tensors();
}

void FunctionRecording::put_back() {
  recording_.trace_ = nullptr;
  traced_here = nullptr;
  make_current(nullptr);
  recording_.sums_.resize(sums_);
  for (Touched& each : touched_) each.cell->set_state(each.value, each.root, each.placed);
  for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) part->host.undo();
}

void FunctionRecording::add_part(const std::function<void()>& first, HostPart part) {
  FunctionRecording& own = *traced_here->trace_;
  const LiftedNumbers numbers;
  first();
  own.parts_.push_back({std::move(part), numbers.nodes()});
}

void FunctionRecording::note_parts(Plan& plan, const Captured& captured) {
  std::unordered_map<const Node*, std::pair<int, int64_t>> places;
  for (std::size_t v = 0; v < captured.numbers.size(); ++v) {
    for (std::size_t i = 0; i < captured.numbers[v].size(); ++i) {
      places[captured.numbers[v][i].get()] = {static_cast<int>(v), static_cast<int64_t>(i)};
    }
  }
  for (const Part& part : parts_) {
    Plan::Part& noted = plan.parts_.emplace_back();
    noted.host = part.host;
    for (const auto& number : part.numbers) {
      const auto place = places.find(number.get());
      noted.places.push_back(place == places.end() ? std::pair(-1, int64_t{-1}) : place->second);
    }
  }
}

torch::Tensor FunctionRecording::argument(const TensorType& type, bool requires_grad) {
  const Value value = make_data(type, nullptr);
  arguments_.push_back(make_tensor(value, {type.sizes, dense_strides(type.sizes), 0}, recording_));
  arguments_.back().requires_grad_(requires_grad);
  argument_values_.push_back(value);
  return arguments_.back();
}

void FunctionRecording::touch(Cell& cell) {
  if (cell.id() >= first_ || place_.contains(&cell)) return;
  const Value placeholder = make_data(cell.value().type(), nullptr);
  placeholder.node->layer = cell.name();
  place_.emplace(&cell, touched_.size());
  touched_.push_back({cell.storage(), &cell, cell.value(), cell.root(), cell.placed(), placeholder});
  cell.set_state(placeholder, cell.root(), placeholder.node);
}

void FunctionRecording::note_arguments(Plan& plan, Outputs& outputs) const {
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    const Value now = value_of(arguments_[i]);
    const bool written = !(now == argument_values_[i]);
    plan.arguments_.push_back(tensor_type(arguments_[i]));
    plan.argument_placeholders_.push_back(argument_values_[i].node);
    plan.argument_written_.push_back(written);
    if (written) outputs.add(now);
  }
}

void FunctionRecording::note_results(Plan& plan, Outputs& outputs, const std::vector<torch::Tensor>& results) const {
  for (const torch::Tensor& result : results) {
    Plan::Result& noted = plan.results_.emplace_back();
    if (!is_recorded(result)) {
      noted.host = result;
      continue;
    }
    // The result is a tensor of its own, whatever it shares its memory with here.
    noted.on_device = true;
    noted.view = strided_of(result);
    noted.view.offset = 0;
    outputs.add(value_of(result));
  }
}

void FunctionRecording::note_captives(Plan& plan, Outputs& outputs) {
  for (const Touched& each : touched_) {
    const Value now = each.cell->read(each.root);
    const bool written = !(now == each.placeholder);
    plan.captives_.push_back({each.cell->id(), nullptr, each.root, written, each.placeholder.node});
    plan.kept_.push_back(each.storage);
    if (written) outputs.add(now, each.placeholder.node);
  }
}

void FunctionRecording::note_left(Plan& plan, Outputs& outputs) const {
  std::unordered_set<const Cell*> known;
  for (const torch::Tensor& each : arguments_) known.insert(&cell_of(each));
  for (auto it = recording_.cells_.lower_bound(first_); it != recording_.cells_.end(); ++it) {
    const Cell& cell = *it->second;
    if (!cell.is_of_function() || known.contains(&cell)) continue;
    plan.left_.push_back({cell.id(), cell.root(), cell.value()});
    outputs.add(cell.value());
  }
}

void FunctionRecording::note_gradients(Plan& plan) const {
  for (const auto& [impl, leaf] : leaves_) {
    const auto held = leaf.tensor.lock();
    if (held.defined()) plan.leaves_.push_back({leaf.tensor, leaf.before, gradient_of(torch::Tensor(held))});
  }
}

void FunctionRecording::note_sources(Plan& plan, const Captured& captured) const {
  std::unordered_map<const Node*, Plan::Source> known;
  for (std::size_t i = 0; i < argument_values_.size(); ++i) {
    known[argument_values_[i].node.get()] = {Plan::Source::Kind::kArgument, i};
  }
  for (std::size_t i = 0; i < touched_.size(); ++i) {
    known[touched_[i].placeholder.node.get()] = {Plan::Source::Kind::kCaptive, i};
  }
  for (const Value& leaf : captured.data) {
    const auto it = known.find(leaf.node.get());
    if (it != known.end()) {
      plan.sources_.push_back(it->second);
      continue;
    }
    plan.sources_.push_back({Plan::Source::Kind::kConstant, plan.constants_.size()});
    const TensorType& type = leaf.type();
    plan.constants_.push_back(make_tensor(leaf, {type.sizes, dense_strides(type.sizes), 0}, recording_));
  }
}

std::shared_ptr<Plan> FunctionRecording::finish(std::vector<torch::Tensor> results) {
  settle_backward(bystander_);
  const std::scoped_lock lock(recording_.mutex_);
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    if (!arguments_[i].grad().defined()) continue;
    fail<InvalidArgument>("[record] ", what_, " gives the tensor ", i, " (", to_string(argument_values_[i].type()),
                          ") of its arguments a gradient, which is lost; return the gradient (torch::autograd::grad)");
  }
  std::shared_ptr<Plan> plan(new Plan(recording_, what_));
  Outputs outputs;
  note_results(*plan, outputs, results);
  results.clear();  // with them goes what gradients would be computed from
  note_arguments(*plan, outputs);
  note_captives(*plan, outputs);
  note_left(*plan, outputs);
  note_gradients(*plan);
  const Captured captured = record::capture(outputs.values, outputs.donors, recording_.cache_);
  plan->program_ = captured.program;
  for (std::size_t v = 0; v < captured.numbers.size(); ++v) {
    Plan::Numbers& noted = plan->numbers_.emplace_back();
    noted.dtype = captured.scalars[v].scalar_type();
    for (const auto& node : captured.numbers[v]) noted.values.push_back(node->number);
  }
  note_sources(*plan, captured);
  note_parts(*plan, captured);
  put_back();
  plan->clear_left_tensors();
  if (!plan->renew_numbers())
    fail<Internal>("[record] a part of ", what_, " records something else when it comes again");
  plan->undo_numbers();
  return plan;
}

}  // namespace cohort::record
