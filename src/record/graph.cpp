#include "record/graph.h"

#include <c10/util/accumulate.h>

#include <sstream>

namespace cohort::record {

int64_t TensorType::numel() const {
  return c10::multiply_integers(sizes);
}

std::string to_string(const TensorType& type) {
  std::ostringstream out;
  out << type.dtype << c10::IntArrayRef(type.sizes);
  return out.str();
}

const TensorType& Value::type() const {
  return node->outputs[static_cast<std::size_t>(output)];
}

Node::~Node() {
  std::vector<std::shared_ptr<Node>> held;
  const auto take = [&held](std::vector<Argument>& arguments) {
    each_value(arguments, [&held](const Value& value) {
      if (value.node.use_count() == 1) held.push_back(value.node);
    });
    arguments.clear();
  };
  take(arguments);
  while (!held.empty()) {
    const std::shared_ptr<Node> last = std::move(held.back());
    held.pop_back();
    if (last.use_count() == 1) take(last->arguments);
  }
}

namespace {

thread_local LiftedNumbers* collecting = nullptr;

// Returns the leaf that a value is a view or a conversion of, or the value's own node.
const Node& origin_of(const Value& value) {
  const Node* node = value.node.get();
  while (node->op == "aten::as_strided" || node->op == "aten::permute" || node->op == "cohort::copy") {
    const auto* first = node->arguments.empty() ? nullptr : std::get_if<Value>(&node->arguments[0]);
    if (first == nullptr) break;
    node = first->node.get();
  }
  return *node;
}

}  // namespace

std::string layer_of(const std::string& op, const std::vector<Argument>& arguments) {
  const bool is_backward = op.find("_backward") != std::string::npos;
  std::string own;
  std::string before;
  each_value(arguments, [&](const Value& value) {
    const Node& origin = origin_of(value);
    if (origin.layer.empty()) return;
    if (origin.op != kDataOp && (before.empty() || is_backward)) before = origin.layer;
    const std::size_t dot = origin.op == kDataOp ? origin.layer.rfind('.') : std::string::npos;
    if (dot != std::string::npos && own.empty()) own = origin.layer.substr(0, dot);
  });
  return own.empty() ? before : own;
}

LiftedNumbers::LiftedNumbers() {
  collecting = this;
}

LiftedNumbers::~LiftedNumbers() {
  collecting = nullptr;
}

std::size_t LiftedNumbers::count_here() {
  return collecting == nullptr ? 0 : collecting->nodes_.size();
}

Value make_data(const TensorType& type, std::shared_ptr<DeviceData> data) {
  auto node = std::make_shared<Node>();
  node->op = kDataOp;
  node->outputs = {type};
  if (data != nullptr) node->data = {std::move(data)};
  return {std::move(node), 0};
}

Value make_scalar(const at::Scalar& number, torch::ScalarType dtype) {
  auto node = std::make_shared<Node>();
  node->op = kScalarOp;
  node->outputs = {{dtype, {}}};
  node->number = number;
  if (collecting != nullptr) collecting->nodes_.push_back(node);
  return {std::move(node), 0};
}

}  // namespace cohort::record
