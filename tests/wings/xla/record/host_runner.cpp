#include "tests/wings/xla/record/host_runner.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <stdexcept>

#include "wings/xla/record/loop.h"

namespace cohort::record {

namespace {

// A value "on the device": a tensor that only this runner looks at.
class Held final : public DeviceData {
 public:
  explicit Held(torch::Tensor tensor) : tensor_(std::move(tensor)) {}
  const torch::Tensor& tensor() const {
    if (!tensor_.defined()) throw std::runtime_error("a value was used after its memory was given away");
    return tensor_;
  }
  void give_away() { tensor_ = torch::Tensor(); }

 private:
  torch::Tensor tensor_;
};

class Run {
 public:
  Run(const Program& program, std::vector<torch::Tensor> inputs) : program_(program), inputs_(std::move(inputs)) {}

  // Does the next operation of each run, one after the other; a sum over the replicas is that of all of them.
  static void do_next(std::vector<Run>& replicas) {
    const torch::NoGradGuard no_grad;
    const Operation& operation = replicas.front().program_.operations().at(replicas.front().results_.size());
    torch::Tensor sum;
    for (Run& replica : replicas) {
      if (operation.op != kAllReduceOp) {
        replica.results_.push_back(replica.results(operation));
        continue;
      }
      const torch::Tensor own = replica.value(std::get<Place>(operation.arguments.at(0)));
      sum = sum.defined() ? sum + own : own.clone();
    }
    if (!sum.defined()) return;
    for (Run& replica : replicas) replica.results_.push_back({sum.clone()});
  }

  std::vector<torch::Tensor> outputs() const {
    std::vector<torch::Tensor> values;
    for (const Place& place : program_.outputs()) values.push_back(value(place));
    return values;
  }

 private:
  torch::Tensor value(const Place& place) const {
    const auto index = static_cast<std::size_t>(place.index);
    if (place.operation >= 0) return results_.at(static_cast<std::size_t>(place.operation)).at(index);
    return place.element < 0 ? inputs_.at(index) : inputs_.at(index)[place.element];
  }

  c10::IValue argument(const PlaceArgument& argument, const c10::Argument& wanted) const {
    if (const auto* place = std::get_if<Place>(&argument)) {
      if (wanted.type()->kind() == c10::TypeKind::NumberType) return value(*place).item();
      return value(*place);
    }
    if (const auto* attribute = std::get_if<c10::IValue>(&argument)) {
      if (attribute->isScalar() && wanted.type()->kind() == c10::TypeKind::TensorType)
        return at::scalar_tensor(attribute->toScalar());
      return *attribute;
    }
    const auto* list = std::get_if<std::vector<std::optional<Place>>>(&argument);
    if (list == nullptr) return {};
    c10::List<torch::Tensor> tensors;
    c10::List<c10::optional<torch::Tensor>> optionals;
    const bool optional = wanted.type()->str().find("Tensor?[]") != std::string::npos;
    for (const auto& place : *list) {
      if (optional) optionals.push_back(place ? c10::make_optional(value(*place)) : c10::nullopt);
      if (!optional) tensors.push_back(value(place.value()));
    }
    return optional ? c10::IValue(optionals) : c10::IValue(tensors);
  }

  std::vector<torch::Tensor> results(const Operation& operation) const {
    const auto tensor = [&](std::size_t i) { return value(std::get<Place>(operation.arguments.at(i))); };
    const auto attribute = [&](std::size_t i) { return std::get<c10::IValue>(operation.arguments.at(i)); };
    const TensorType& type = operation.outputs.at(0);
    const auto empty = [&] { return at::empty(type.sizes, at::TensorOptions().dtype(type.dtype)); };
    if (operation.op == "cohort::copy") return {empty().copy_(tensor(0))};
    if (operation.op == "aten::full") {
      const bool lifted = std::holds_alternative<Place>(operation.arguments.at(0));
      return {empty().fill_(lifted ? tensor(0).item() : attribute(0).toScalar())};
    }
    if (operation.op == "aten::arange") {
      const double start = attribute(0).toScalar().toDouble();
      const double step = attribute(1).toScalar().toDouble();
      return {at::arange(type.sizes.at(0), torch::kDouble).mul(step).add(start).to(type.dtype)};
    }
    if (operation.op == "aten::as_strided") {
      return {tensor(0)
                  .contiguous()
                  .as_strided(attribute(1).toIntVector(), attribute(2).toIntVector(), attribute(3).toInt())
                  .clone()};
    }
    if (operation.op == "aten::as_strided_scatter") {
      const torch::Tensor memory = tensor(0).clone(torch::MemoryFormat::Contiguous);
      memory.as_strided(attribute(2).toIntVector(), attribute(3).toIntVector(), attribute(4).toInt()).copy_(tensor(1));
      return {memory};
    }
    return dispatched(operation);
  }

  std::vector<torch::Tensor> dispatched(const Operation& operation) const {
    const std::size_t dot = operation.op.find('.');
    const std::string overload = dot == std::string::npos ? "" : operation.op.substr(dot + 1);
    const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow(operation.op.substr(0, dot).c_str(), overload.c_str());
    torch::jit::Stack stack;
    for (std::size_t i = 0; i < operation.arguments.size(); ++i) {
      stack.push_back(argument(operation.arguments[i], op.schema().arguments().at(i)));
    }
    op.callBoxed(&stack);
    std::vector<torch::Tensor> results;
    for (const c10::IValue& result : stack) {
      if (result.isTensor()) results.push_back(result.toTensor());
      if (result.isTensorList()) throw std::runtime_error("a list of results of " + operation.op);
    }
    // An operation that was recorded from one in place has the dtype of what it wrote to.
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (results[i].defined())
        results[i] = results[i].to(operation.outputs.at(i).dtype).expand(operation.outputs[i].sizes);
    }
    return results;
  }

  const Program& program_;
  std::vector<torch::Tensor> inputs_;
  std::vector<std::vector<torch::Tensor>> results_;
};

}  // namespace

std::shared_ptr<DeviceData> HostRunner::place(const torch::Tensor& host, int /*device*/) {
  ++placed_;
  return std::make_shared<Held>(host.clone());
}

torch::Tensor HostRunner::fetch(const DeviceData& data, const TensorType& type) {
  const torch::Tensor& tensor = dynamic_cast<const Held&>(data).tensor();
  if (tensor.scalar_type() != type.dtype || tensor.sizes() != c10::IntArrayRef(type.sizes)) {
    throw std::runtime_error("a value is not of its type " + to_string(type));
  }
  return tensor.clone();
}

std::vector<std::shared_ptr<DeviceData>> HostRunner::run(const std::shared_ptr<const Program>& program,
                                                         std::span<const std::shared_ptr<DeviceData>> inputs,
                                                         int device) {
  const Values own(inputs.begin(), inputs.end());
  return run_replicas(program, {&own, 1}, {&device, 1}).front();
}

namespace {

using Tensors = std::vector<torch::Tensor>;

// Runs a program on all replicas and returns the outputs of each.
std::vector<Tensors> run_once(const Program& program, const std::vector<Tensors>& inputs) {
  std::vector<Run> runs;
  for (const Tensors& own : inputs) runs.emplace_back(program, own);
  for (std::size_t i = 0; i < program.operations().size(); ++i) Run::do_next(runs);
  std::vector<Tensors> outputs;
  for (const Run& run : runs) outputs.push_back(run.outputs());
  return outputs;
}

// Runs a loop (wings/xla/record/loop.h) as so many runs of its body.
std::vector<Tensors> run_loop(const Loop& loop, const std::vector<Tensors>& inputs) {
  const std::vector<int> first = inputs_of_loop(loop);
  const auto runs = inputs.front().back().item<int64_t>();
  std::vector<Tensors> last;
  std::vector<std::vector<Tensors>> made;
  for (int64_t run = 0; run < runs; ++run) {
    std::vector<Tensors> own(inputs.size());
    for (std::size_t r = 0; r < inputs.size(); ++r) {
      for (std::size_t i = 0; i < loop.feeds.size(); ++i) {
        const Feed& feed = loop.feeds[i];
        const bool fresh = feed.kind == Feed::Kind::kFresh;
        const auto place = static_cast<std::size_t>(first[i] + (fresh ? run : 0));
        const bool carried = feed.kind == Feed::Kind::kCarried && run > 0;
        own[r].push_back(carried ? last[r][static_cast<std::size_t>(feed.output)] : inputs[r].at(place));
      }
    }
    last = run_once(*loop.body, own);
    made.push_back(last);
  }
  for (std::size_t r = 0; r < last.size(); ++r) {
    for (const int output : loop.kept) {
      const auto o = static_cast<std::size_t>(output);
      for (std::size_t run = 0; run < static_cast<std::size_t>(loop.most); ++run) {
        last[r].push_back(run < made.size() ? made[run][r][o] : at::zeros_like(made.front()[r][o]));
      }
    }
  }
  return last;
}

}  // namespace

std::vector<HostRunner::Values> HostRunner::run_replicas(const std::shared_ptr<const Program>& program,
                                                         std::span<const Values> inputs, std::span<const int> devices) {
  ran_.push_back(program);
  replicas_.push_back(static_cast<int>(devices.size()));
  std::vector<Tensors> tensors;
  for (const Values& own : inputs) {
    Tensors& list = tensors.emplace_back();
    for (const auto& input : own) list.push_back(dynamic_cast<const Held&>(*input).tensor());
  }
  std::vector<Values> outputs;
  for (const Tensors& own : program->loop() ? run_loop(*program->loop(), tensors) : run_once(*program, tensors)) {
    Values& values = outputs.emplace_back();
    for (const torch::Tensor& output : own) values.push_back(std::make_shared<Held>(output.clone()));
  }
  for (const int alias : program->aliases()) {
    if (alias < 0) continue;
    for (const Values& own : inputs) dynamic_cast<Held&>(*own[static_cast<std::size_t>(alias)]).give_away();
  }
  return outputs;
}

}  // namespace cohort::record
