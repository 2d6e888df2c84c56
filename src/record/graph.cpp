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

std::string layer_of(const std::vector<Argument>& arguments) {
  std::string own;
  std::string before;
  each_value(arguments, [&](const Value& value) {
    const std::string& layer = value.node->layer;
    if (layer.empty()) return;
    const std::size_t dot = value.node->op == kDataOp ? layer.rfind('.') : std::string::npos;
    if (dot != std::string::npos && own.empty()) own = layer.substr(0, dot);
    if (value.node->op != kDataOp && before.empty()) before = layer;
  });
  return own.empty() ? before : own;
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
  return {std::move(node), 0};
}

}  // namespace cohort::record
