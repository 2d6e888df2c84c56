#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <unordered_set>

#include "base/fail.h"
#include "wings/xla/record/function_recording.h"

namespace cohort::record {

namespace {

// Returns whether the value is made of one of these nodes, or of a sum over replicas.
bool depends_on(const Value& value, const std::unordered_set<const Node*>& wanted) {
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> stack{value.node.get()};
  while (!stack.empty()) {
    const Node* node = stack.back();
    stack.pop_back();
    if (wanted.contains(node) || node->op == kAllReduceOp) return true;
    if (node->is_leaf() || !seen.insert(node).second) continue;
    each_value(node->arguments, [&](const Value& argument) { stack.push_back(argument.node.get()); });
  }
  return false;
}

Value zeros_of(const TensorType& type) {
  return make_node("aten::full", {c10::IValue(at::Scalar(0))}, type);
}

}  // namespace

// The values that a run reads, all leaves, and the tensors that keep those which had to be computed first.
struct Plan::Given {
  std::vector<Value> arguments;
  std::vector<Value> captives;
  std::vector<torch::Tensor> kept;
};

Cell* Plan::find(uint64_t id) const {
  const auto it = recording_.cells_.find(id);
  return it == recording_.cells_.end() ? nullptr : it->second;
}

bool Plan::is_current() const {
  const std::scoped_lock lock(recording_.mutex_);
  const auto lives = [&](const auto& each) { return find(each.id) != nullptr; };
  return std::all_of(captives_.begin(), captives_.end(), lives) && std::all_of(left_.begin(), left_.end(), lives) &&
         std::all_of(leaves_.begin(), leaves_.end(), [&](const Leaf& each) { return has_its_gradient(each); });
}

// A call begins with the gradients that the one before has left. So the recording is right for a gradient that it found
// and left in place, or made in spite of the one that it found (FunctionState::record_anew).
bool Plan::has_its_gradient(const Leaf& leaf) const {
  const auto held = leaf.tensor.lock();
  if (!held.defined() || gradient_of(torch::Tensor(held)) != leaf.after) return false;
  const auto is_it = [&](const Left& each) { return each.id == leaf.after; };
  return leaf.before == leaf.after || std::any_of(left_.begin(), left_.end(), is_it);
}

void Plan::find_captives() {
  for (Captive& each : captives_) {
    each.cell = find(each.id);
    if (each.cell != nullptr) continue;
    fail<FailedPrecondition>("[record] ", what_, " was to run, but a tensor that it was recorded with is gone");
  }
}

void Plan::settle_left_tensors() {
  const std::scoped_lock lock(recording_.mutex_);
  std::unordered_set<const Node*> unknown;
  for (const auto& each : argument_placeholders_) unknown.insert(each.lock().get());
  for (const Captive& each : captives_) {
    const std::shared_ptr<Node> placeholder = each.placeholder.lock();
    if (placeholder == nullptr) continue;
    placeholder->op = "cohort::copy";
    placeholder->arguments = {find(each.id)->read(each.root)};
  }
  for (Left& each : left_) {
    Cell* const cell = find(each.id);
    if (cell != nullptr)
      cell->write(each.root, depends_on(each.value, unknown) ? zeros_of(each.value.type()) : each.value);
    each.value = {};
  }
  kept_.clear();
}

void Plan::clear_left_tensors() {
  for (const Left& each : left_) {
    if (Cell* const cell = find(each.id)) cell->write(each.root, zeros_of(each.value.type()));
  }
}

void Plan::check_apart(std::span<const torch::Tensor> arguments) const {
  std::unordered_map<const Cell*, bool> captive;
  for (const Captive& each : captives_) captive[each.cell] = each.written;
  std::unordered_map<const Cell*, std::size_t> seen;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Cell* cell = &cell_of(arguments[i]);
    const auto own = captive.find(cell);
    const auto [other, is_new] = seen.emplace(cell, i);
    const bool writes = argument_written_[i] || (!is_new && argument_written_[other->second]);
    if (!(own != captive.end() && (own->second || writes)) && !(!is_new && writes)) continue;
    fail<FailedPrecondition>("[record] ", what_, " got the tensor ", i, " (", to_string(arguments_[i]),
                             "), which shares its memory with another tensor of the function, and one of them is "
                             "written; pass a clone");
  }
}

// Makes all values leaves: begins what they wait for.
Plan::Given Plan::leaves(std::span<const torch::Tensor> arguments) {
  Given given;
  std::vector<std::pair<Value*, std::size_t>> waiting;
  const auto take = [&](std::vector<Value>& list, const Value& value) {
    list.push_back(value);
    if (value.node->is_leaf()) return;
    waiting.emplace_back(&list.back(), given.kept.size());
    given.kept.push_back(make_tensor(value, {value.type().sizes, dense_strides(value.type().sizes), 0}, recording_));
  };
  given.arguments.reserve(arguments.size());
  given.captives.reserve(captives_.size());
  for (const torch::Tensor& argument : arguments) take(given.arguments, value_of(argument));
  for (const Captive& each : captives_) take(given.captives, each.cell->read(each.root));
  if (waiting.empty()) return given;
  recording_.flush();
  for (const auto& [value, kept] : waiting) *value = value_of(given.kept[kept]);
  // A tensor that waited has its own value now, and the copy that kept it is not needed.
  for (std::size_t i = 0; i < captives_.size(); ++i) {
    const Value own = captives_[i].cell->read(captives_[i].root);
    if (own.node->is_leaf()) given.captives[i] = own;
  }
  given.kept.clear();
  return given;
}

// The memory of a tensor can be given away only where no other one, and nothing that waits, has its value.
bool Plan::is_shared(const Captive& captive) const {
  const Value& value = captive.cell->value();
  constexpr int64_t kOwn = 3;  // the cell's value, what it was placed as, and what the run is given
  const auto output = static_cast<std::size_t>(value.output);
  return value.node.use_count() > kOwn || value.node->outputs.size() != 1 ||
         value.node->data.at(output).use_count() > 1;
}

std::shared_ptr<DeviceData> Plan::copy_of(GraphRunner& runner, const Value& leaf) const {
  const std::vector<Value> whole{leaf};
  const Captured copy = record::capture(whole, {}, recording_.cache_);
  const std::vector<std::shared_ptr<DeviceData>> input{recording_.place_input(runner, leaf)};
  return runner.run(copy.program, input, recording_.device()).at(0);
}

std::vector<std::shared_ptr<DeviceData>> Plan::inputs(GraphRunner& runner, const Given& given) {
  std::vector<bool> given_away(sources_.size(), false);
  for (const int input : program_->aliases()) {
    if (input >= 0) given_away[static_cast<std::size_t>(input)] = true;
  }
  std::vector<std::shared_ptr<DeviceData>> inputs;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const Source& source = sources_[i];
    if (source.kind == Source::Kind::kArgument) {
      inputs.push_back(recording_.place_input(runner, given.arguments[source.index]));
    } else if (source.kind == Source::Kind::kConstant) {
      inputs.push_back(recording_.place_input(runner, value_of(constants_[source.index])));
    } else {
      const Captive& captive = captives_[source.index];
      captive.cell->forget_views();
      const Value& leaf = given.captives[source.index];
      (void)recording_.place_input(runner, leaf);
      const bool copies = given_away[i] && is_shared(captive);
      inputs.push_back(recording_.place_input(runner, leaf));
      if (copies) inputs.back() = copy_of(runner, leaf);
    }
  }
  for (Numbers& each : numbers_) {
    if (each.placed == nullptr) each.placed = runner.place(pack_numbers(each.dtype, each.values), recording_.device());
    inputs.push_back(each.placed);
  }
  return inputs;
}

// Gives the outputs to the tensors that they are for.
std::vector<torch::Tensor> Plan::take(std::vector<std::shared_ptr<DeviceData>> data,
                                      std::span<const torch::Tensor> arguments) {
  std::size_t next = 0;
  const auto leaf = [&] {
    const TensorType type = program_->type_of(program_->outputs()[next]);
    return make_data(type, std::move(data.at(next++)));
  };
  std::vector<torch::Tensor> results;
  for (const Result& each : results_) {
    results.push_back(each.on_device ? make_tensor(leaf(), each.view, recording_) : each.host);
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!argument_written_[i]) continue;
    assign(arguments[i], leaf());
    arguments[i].unsafeGetTensorImpl()->bump_version();
  }
  for (const Captive& each : captives_) {
    if (!each.written) continue;
    each.cell->write(each.root, leaf());
    each.cell->bump_version();
  }
  for (Left& each : left_) {
    const Value value = leaf();
    if (Cell* cell = find(each.id)) cell->write(each.root, value);
    each.value = {};
  }
  return results;
}

std::vector<torch::Tensor> Plan::run(std::span<const torch::Tensor> arguments) {
  Plan* const self = this;
  const std::vector<torch::Tensor> own(arguments.begin(), arguments.end());
  return std::move(launch({&self, 1}, {&own, 1}, has_sums()).front());
}

std::vector<std::vector<torch::Tensor>> Plan::run_together(std::span<Plan* const> plans,
                                                           std::span<const std::vector<torch::Tensor>> arguments) {
  return launch(plans, arguments, /*together=*/true);
}

namespace {

[[noreturn]] void refuse_programs(const std::string& what, const std::string& where) {
  fail<Unimplemented>("[record] ", what, " is to run on all replicas together, but is another program ", where,
                      ", as with shares of different sizes; give all replicas the same sizes");
}

}  // namespace

std::vector<std::vector<torch::Tensor>> Plan::launch(std::span<Plan* const> plans,
                                                     std::span<const std::vector<torch::Tensor>> arguments,
                                                     bool together) {
  // Locks are taken in one order, whatever the plans' is.
  std::vector<Recording*> ordered;
  for (Plan* const plan : plans) ordered.push_back(&plan->recording_);
  std::sort(ordered.begin(), ordered.end(), [](auto* a, auto* b) { return a->device() < b->device(); });
  std::vector<std::unique_lock<std::recursive_mutex>> locks;
  for (Recording* const each : ordered) locks.emplace_back(each->mutex_);
  const std::shared_ptr<const Program>& program = plans.front()->program_;
  for (std::size_t r = 0; r < plans.size(); ++r) {
    plans[r]->recording_.require_running(plans[r]->what_ + " was to run");
    if (plans[r]->program_ != program) {
      refuse_programs(plans[r]->what_,
                      c10::str("on xla:", plans[r]->device(), " than on xla:", plans.front()->device()));
    }
    plans[r]->find_captives();
    plans[r]->check_apart(arguments[r]);
  }
  const std::shared_ptr<GraphRunner> runs = runner();
  std::vector<std::vector<std::shared_ptr<DeviceData>>> data;
  {
    std::vector<Given> given;
    std::vector<std::vector<std::shared_ptr<DeviceData>>> inputs;
    std::vector<int> devices;
    for (std::size_t r = 0; r < plans.size(); ++r) {
      given.push_back(plans[r]->leaves(arguments[r]));
      inputs.push_back(plans[r]->inputs(*runs, given.back()));
      devices.push_back(plans[r]->device());
    }
    const std::shared_ptr<Hosts> hosts = together ? runs->hosts(devices) : nullptr;
    if (hosts != nullptr && !agree_on_program(*hosts, program.get(), {})) {
      refuse_programs(plans.front()->what_, "on other hosts");
    }
    // Steps are launched together, also those of one replica, which may be gathered then.
    if (together) {
      data = runs->run_replicas(program, inputs, devices);
    } else {
      data.push_back(runs->run(program, inputs.front(), devices.front()));
    }
  }
  std::vector<std::vector<torch::Tensor>> results;
  for (std::size_t r = 0; r < plans.size(); ++r) {
    results.push_back(plans[r]->take(std::move(data.at(r)), arguments[r]));
    plans[r]->kept_.clear();
  }
  return results;
}

namespace {

// Gives the numbers of a part to the vectors that have them. numbers[from[i]] is the i-th one, or numbers[i].
template <typename Places, typename Vectors, typename Number>
bool put_numbers(const Places& places, Vectors& vectors, const std::vector<std::size_t>& from, std::size_t count,
                 const Number& number) {
  if ((from.empty() ? count : from.size()) != places.size()) return false;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto& [vector, element] = places[i];
    if (vector < 0) continue;
    auto& own = vectors[static_cast<std::size_t>(vector)];
    own.values[static_cast<std::size_t>(element)] = number(from.empty() ? i : from[i]);
    own.placed = nullptr;
  }
  return true;
}

}  // namespace

// Takes the numbers without recording the part. Returns false if that cannot be.
bool Plan::repeat(Part& part, std::vector<Numbers>& numbers, bool& is_gone) const {
  constexpr int kMostFailures = 3;  // of parts that do what cannot be repeated
  if (!part.repetition.is_noted() || part.failed >= kMostFailures) return false;
  Repetition& repetition = part.repetition;
  std::optional<HostPart::Again> again;
  {
    const Repetition::Scope scope(repetition);
    repetition.repeat();
    again = part.host.again();
  }
  is_gone = !again;
  if (is_gone) return false;
  const auto number = [&](std::size_t i) { return repetition.numbers().at(i); };
  if (repetition.repeated() && put_numbers(part.places, numbers, again->numbers, repetition.numbers().size(), number)) {
    return true;
  }
  ++part.failed;
  part.host.undo();
  return false;
}

bool Plan::renew(Part& part, std::vector<Numbers>& numbers) const {
  bool is_gone = false;
  if (repeat(part, numbers, is_gone)) return true;
  if (is_gone) return false;
  const LiftedNumbers lifted;
  const Repetition::Scope scope(part.repetition);
  part.repetition.begin();
  const std::optional<HostPart::Again> again = part.host.again();
  if (!again) return false;
  std::vector<Value> values;
  for (const torch::Tensor& each : again->written) values.push_back(value_of(each));
  const Captured captured = record::capture(values, {}, recording_.cache_);
  part.repetition.finish();
  if (part.recorded == nullptr) part.recorded = captured.program;
  const auto number = [&](std::size_t i) { return lifted.nodes().at(i)->number; };
  if (captured.program == part.recorded &&
      put_numbers(part.places, numbers, again->numbers, lifted.nodes().size(), number)) {
    return true;
  }
  part.host.undo();
  return false;
}

bool Plan::renew_numbers() {
  if (parts_.empty()) return true;
  const std::scoped_lock lock(recording_.mutex_);
  const torch::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below;  // the parts' tensors are nobody's
  std::vector<Numbers> numbers = numbers_;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (renew(parts_[i], numbers)) continue;
    while (i-- > 0) parts_[i].host.undo();
    return false;
  }
  numbers_ = std::move(numbers);
  return true;
}

void Plan::settle() {
  for (Part& part : parts_) {
    if (part.host.after) part.host.after();
  }
}

void Plan::undo_numbers() {
  for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) part->host.undo();
}

}  // namespace cohort::record
