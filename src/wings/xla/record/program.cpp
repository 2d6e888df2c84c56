// Capturing walks the graph from the outputs to the leaves, numbers the nodes in the order in which they can run, and
// writes the signature on the way. Only a signature that is new pays for a Program.
#include "wings/xla/record/program.h"

#include <algorithm>
#include <sstream>

#include "base/fail.h"
#include "base/hash.h"
#include "wings/xla/record/recorder.h"

namespace cohort::record {

namespace {

// Writes an attribute as the signature has it. Where an operation runs is not a part of it.
void describe(std::ostream& out, const c10::IValue& value) {
  if (value.isDevice() || value.isGenerator()) return;
  if (value.isDouble()) {
    out << std::hexfloat << value.toDouble() << std::defaultfloat;
  } else if (value.isInt()) {
    out << value.toInt();
  } else if (value.isBool()) {
    out << (value.toBool() ? "true" : "false");
  } else if (value.isList()) {
    out << '[';
    for (const c10::IValue& element : value.toListRef()) {
      describe(out, element);
      out << ',';
    }
    out << ']';
  } else if (value.isNone()) {
    out << '-';
  } else {
    out << value;
  }
}

}  // namespace

TensorType Program::type_of(const Place& place) const {
  const auto index = static_cast<std::size_t>(place.index);
  if (place.operation >= 0) return operations_[static_cast<std::size_t>(place.operation)].outputs[index];
  return place.element < 0 ? inputs_[index].type : TensorType{inputs_[index].type.dtype, {}};
}

std::string Program::hash() const {
  std::ostringstream out;
  out << std::hex;
  out.width(16);
  out.fill('0');
  out << fingerprint_;
  return out.str();
}

std::shared_ptr<const Program> ProgramCache::find(const std::string& signature) {
  const std::scoped_lock lock(mutex_);
  const auto it = programs_.find(signature);
  if (it == programs_.end()) return nullptr;
  std::shared_ptr<const Program> program = it->second.lock();
  if (program != nullptr) recent_.find(program.get());  // counts as used
  return program;
}

std::shared_ptr<const Program> ProgramCache::add(std::shared_ptr<const Program> program, std::size_t most) {
  const std::scoped_lock lock(mutex_);
  std::weak_ptr<const Program>& known = programs_[program->signature()];
  if (std::shared_ptr<const Program> before = known.lock()) return before;
  known = program;
  recent_.put(program.get(), program, most);
  std::erase_if(programs_, [](const auto& each) { return each.second.expired(); });
  return program;
}

std::size_t ProgramCache::size() const {
  const std::scoped_lock lock(mutex_);
  return static_cast<std::size_t>(
      std::count_if(programs_.begin(), programs_.end(), [](const auto& each) { return !each.second.expired(); }));
}

class Capture {
 public:
  Captured run(std::span<const Value> outputs, std::span<const std::shared_ptr<Node>> donors, ProgramCache& cache) {
    for (const Value& output : outputs) visit(output.node);
    number_scalars();
    sign(outputs, donors);
    Captured captured;
    const std::string signature = text_.str();
    captured.program = cache.find(signature);
    if (captured.program == nullptr) {
      captured.program = cache.add(build(outputs, signature), kept_programs());
      captured.is_new = true;
    }
    captured.data = std::move(data_);
    for (const auto& [dtype, nodes] : scalars_) {
      captured.scalars.push_back(pack(dtype, nodes));
      captured.numbers.push_back(nodes);
    }
    return captured;
  }

 private:
  // Puts the nodes that a node needs, and then the node, into the order.
  void visit(const std::shared_ptr<Node>& root) {
    std::vector<std::pair<std::shared_ptr<Node>, bool>> stack{{root, false}};
    while (!stack.empty()) {
      const auto [node, inputs_done] = stack.back();
      stack.pop_back();
      if (inputs_done) {
        numbers_[node.get()] = static_cast<int>(order_.size());
        order_.push_back(node);
        continue;
      }
      if (!seen_.emplace(node.get(), true).second) continue;
      if (node->is_leaf()) {
        take_leaf(node);
        continue;
      }
      stack.emplace_back(node, true);
      const std::size_t at = stack.size();
      each_value(node->arguments, [&](const Value& value) {
        if (!seen_.contains(value.node.get()) || !is_placed(value)) stack.emplace_back(value.node, false);
      });
      std::reverse(stack.begin() + static_cast<std::ptrdiff_t>(at), stack.end());
    }
  }

  bool is_placed(const Value& value) const { return value.node->is_leaf() || numbers_.contains(value.node.get()); }

  void take_leaf(const std::shared_ptr<Node>& node) {
    if (node->op == kScalarOp && node->data.empty()) {
      auto& nodes = scalars_of(node->outputs[0].dtype);
      scalar_element_[node.get()] = static_cast<int64_t>(nodes.size());
      nodes.push_back(node);
      return;
    }
    for (std::size_t i = 0; i < node->outputs.size(); ++i) {
      leaf_numbers_[{node.get(), static_cast<int>(i)}] = -1;  // an input once somebody reads it
    }
  }

  std::vector<std::shared_ptr<Node>>& scalars_of(torch::ScalarType dtype) {
    for (auto& [known, nodes] : scalars_) {
      if (known == dtype) return nodes;
    }
    return scalars_.emplace_back(dtype, std::vector<std::shared_ptr<Node>>()).second;
  }

  // Gives the data inputs their numbers in the order in which they are read, and the vectors of scalars those behind.
  void number_scalars() {
    for (const auto& node : order_) each_value(node->arguments, [this](const Value& value) { note_input(value); });
  }

  void note_input(const Value& value) {
    const auto it = leaf_numbers_.find({value.node.get(), value.output});
    if (it == leaf_numbers_.end() || it->second >= 0) return;
    it->second = static_cast<int>(data_.size());
    data_.push_back(value);
  }

  Place place_of(const Value& value) {
    const auto number = numbers_.find(value.node.get());
    if (number != numbers_.end()) return {number->second, value.output};
    const auto element = scalar_element_.find(value.node.get());
    if (element == scalar_element_.end()) return {-1, leaf_numbers_.at({value.node.get(), value.output})};
    int vector = static_cast<int>(data_.size());
    for (const auto& [dtype, nodes] : scalars_) {
      if (dtype == value.type().dtype) break;
      ++vector;
    }
    return {-1, vector, element->second};
  }

  void write(const Value& value) {
    const Place place = place_of(value);
    text_ << (place.operation < 0 ? '%' : '#') << (place.operation < 0 ? place.index : place.operation);
    if (place.operation >= 0) text_ << ':' << place.index;
    if (place.element >= 0) text_ << '.' << place.element;
  }

  void write(const Argument& argument) {
    if (const auto* value = std::get_if<Value>(&argument)) {
      write(*value);
    } else if (const auto* list = std::get_if<std::vector<Value>>(&argument)) {
      text_ << '{';
      for (const Value& element : *list) {
        if (element) write(element);
        text_ << ',';
      }
      text_ << '}';
    } else if (const auto* attribute = std::get_if<c10::IValue>(&argument)) {
      describe(text_, *attribute);
    } else {
      text_ << '-';
    }
  }

  void sign(std::span<const Value> outputs, std::span<const std::shared_ptr<Node>> donors) {
    for (const Value& output : outputs) note_input(output);  // an input that goes out as it is
    for (const Value& value : data_) text_ << "in " << to_string(value.type()) << '\n';
    for (const auto& [dtype, nodes] : scalars_) text_ << "scalars " << dtype << ' ' << nodes.size() << '\n';
    for (const auto& node : order_) {
      text_ << node->op << '(';
      for (const Argument& argument : node->arguments) {
        write(argument);
        text_ << ';';
      }
      text_ << ')';
      if (node->common != torch::ScalarType::Undefined) text_ << node->common;
      for (const TensorType& type : node->outputs) text_ << ' ' << to_string(type);
      text_ << '\n';
    }
    choose_aliases(outputs, donors);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      text_ << "out ";
      write(outputs[i]);
      if (aliases_[i] >= 0) text_ << " in " << aliases_[i];
      text_ << '\n';
    }
  }

  void choose_aliases(std::span<const Value> outputs, std::span<const std::shared_ptr<Node>> donors) {
    aliases_.assign(outputs.size(), -1);
    std::vector<bool> given(data_.size(), false);
    for (std::size_t i = 0; i < donors.size(); ++i) {
      if (donors[i] == nullptr) continue;
      for (int output = 0; output < static_cast<int>(donors[i]->outputs.size()); ++output) {
        const auto it = leaf_numbers_.find({donors[i].get(), output});
        if (it == leaf_numbers_.end() || it->second < 0 || aliases_[i] >= 0) continue;
        const auto input = static_cast<std::size_t>(it->second);
        if (given[input] || !(data_[input].type() == outputs[i].type())) continue;
        given[input] = true;
        aliases_[i] = it->second;
      }
    }
  }

  std::shared_ptr<const Program> build(std::span<const Value> outputs, const std::string& signature) {
    auto program = std::make_shared<Program>();
    for (const Value& value : data_) {
      program->inputs_.push_back({ProgramInput::Kind::kData, value.type(), value.node->layer});
    }
    for (const auto& [dtype, nodes] : scalars_) {
      program->inputs_.push_back({ProgramInput::Kind::kScalars, {dtype, {static_cast<int64_t>(nodes.size())}}, ""});
    }
    for (const auto& node : order_) {
      Operation operation{node->op, {}, node->outputs, node->common, node->layer};
      for (const Argument& argument : node->arguments) operation.arguments.push_back(placed(argument));
      program->has_sums_ = program->has_sums_ || node->op == kAllReduceOp;
      program->operations_.push_back(std::move(operation));
    }
    for (const Value& output : outputs) program->outputs_.push_back(place_of(output));
    program->aliases_ = aliases_;
    program->signature_ = signature;
    program->fingerprint_ = hash_of(signature);
    return program;
  }

  PlaceArgument placed(const Argument& argument) {
    if (const auto* value = std::get_if<Value>(&argument)) return place_of(*value);
    if (const auto* attribute = std::get_if<c10::IValue>(&argument)) return *attribute;
    const auto* list = std::get_if<std::vector<Value>>(&argument);
    if (list == nullptr) return std::monostate();
    std::vector<std::optional<Place>> places;
    for (const Value& value : *list) places.push_back(value ? std::optional(place_of(value)) : std::nullopt);
    return places;
  }

  static torch::Tensor pack(torch::ScalarType dtype, const std::vector<std::shared_ptr<Node>>& nodes) {
    std::vector<at::Scalar> numbers;
    numbers.reserve(nodes.size());
    for (const auto& node : nodes) numbers.push_back(node->number);
    return pack_numbers(dtype, numbers);
  }

  std::vector<std::shared_ptr<Node>> order_;
  std::unordered_map<const Node*, bool> seen_;
  std::unordered_map<const Node*, int> numbers_;
  std::map<std::pair<const Node*, int>, int> leaf_numbers_;
  std::unordered_map<const Node*, int64_t> scalar_element_;
  std::vector<Value> data_;
  std::vector<std::pair<torch::ScalarType, std::vector<std::shared_ptr<Node>>>> scalars_;
  std::vector<int> aliases_;
  std::ostringstream text_;
};

torch::Tensor pack_numbers(torch::ScalarType dtype, std::span<const at::Scalar> numbers) {
  if (c10::isIntegralType(dtype, /*includeBool=*/true)) {
    std::vector<int64_t> values;
    for (const at::Scalar& number : numbers) values.push_back(number.toLong());
    return at::tensor(values, dtype);
  }
  std::vector<double> values;
  for (const at::Scalar& number : numbers) values.push_back(number.toDouble());
  return at::tensor(values, dtype);
}

Captured capture(std::span<const Value> outputs, std::span<const std::shared_ptr<Node>> donors, ProgramCache& cache) {
  return Capture().run(outputs, donors, cache);
}

}  // namespace cohort::record
