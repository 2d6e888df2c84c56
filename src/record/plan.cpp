#include <algorithm>
#include <unordered_set>

#include "base/fail.h"
#include "record/function_recording.h"

namespace cohort::record {

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
  return std::all_of(captives_.begin(), captives_.end(), lives) && std::all_of(left_.begin(), left_.end(), lives);
}

void Plan::find_captives() {
  for (Captive& each : captives_) {
    each.cell = find(each.id);
    if (each.cell != nullptr) continue;
    fail<FailedPrecondition>("[record] ", what_, " was to run, but a tensor that it was recorded with is gone");
  }
}

void Plan::clear_left_tensors() {
  const std::scoped_lock lock(recording_.mutex_);
  kept_.clear();
  for (const Left& each : left_) {
    Cell* cell = find(each.id);
    if (cell == nullptr || !each.computed) continue;
    cell->write(each.root, make_node("aten::full", {c10::IValue(at::Scalar(0))}, each.type));
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
  if (placed_.empty()) {
    for (const torch::Tensor& numbers : scalars_) placed_.push_back(runner.place(numbers, recording_.device()));
  }
  inputs.insert(inputs.end(), placed_.begin(), placed_.end());
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
    if (argument_written_[i]) assign(arguments[i], leaf());
  }
  for (const Captive& each : captives_) {
    if (each.written) each.cell->write(each.root, leaf());
  }
  for (const Left& each : left_) {
    if (!each.computed) continue;
    const Value value = leaf();
    if (Cell* cell = find(each.id)) cell->write(each.root, value);
  }
  return results;
}

std::vector<torch::Tensor> Plan::run(std::span<const torch::Tensor> arguments) {
  const std::scoped_lock lock(recording_.mutex_);
  recording_.require_running(what_ + " was to run");
  find_captives();
  check_apart(arguments);
  const std::shared_ptr<GraphRunner> runs = runner();
  std::vector<std::shared_ptr<DeviceData>> data;
  {
    const Given given = leaves(arguments);
    data = runs->run(program_, inputs(*runs, given), recording_.device());
  }
  std::vector<torch::Tensor> results = take(std::move(data), arguments);
  kept_.clear();
  return results;
}

}  // namespace cohort::record
