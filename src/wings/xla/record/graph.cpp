#include "wings/xla/record/graph.h"

#include <c10/util/accumulate.h>

#include <sstream>

#include "base/fail.h"
#include "wings/xla/record/repetition.h"

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
thread_local SharedNumbers* sharing = nullptr;

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

void refuse_operation(std::string_view op, std::string_view layer, std::string_view why, std::string_view remedy) {
  fail<Unimplemented>("[record] ", op, layer.empty() ? "" : " in layer ", layer, " ", why, "; ", remedy);
}

LiftedNumbers::LiftedNumbers() {
  collecting = this;
}

LiftedNumbers::~LiftedNumbers() {
  collecting = nullptr;
}

std::size_t LiftedNumbers::count_here() {
  const Repetition* const repetition = Repetition::here();
  if (repetition != nullptr && repetition->repeats()) return repetition->numbers().size();
  return collecting == nullptr ? 0 : collecting->nodes_.size();
}

Value make_data(const TensorType& type, std::shared_ptr<DeviceData> data) {
  auto node = std::make_shared<Node>();
  node->op = kDataOp;
  node->outputs = {type};
  if (data != nullptr) node->data = {std::move(data)};
  return {std::move(node), 0};
}

SharedNumbers::SharedNumbers(std::vector<std::shared_ptr<Node>>& known) : known_(known) {
  sharing = this;
}

SharedNumbers::~SharedNumbers() {
  sharing = nullptr;
}

std::shared_ptr<Node> SharedNumbers::find(const at::Scalar& number, torch::ScalarType dtype) {
  if (next_ >= known_.size()) return nullptr;
  const std::shared_ptr<Node>& node = known_[next_];
  const bool same = node->outputs[0].dtype == dtype && node->number.type() == number.type() &&
                    (number.isIntegral(/*includeBool=*/true) ? node->number.toLong() == number.toLong()
                                                             : node->number.toDouble() == number.toDouble());
  next_ = same ? next_ + 1 : known_.size();
  return same ? node : nullptr;
}

Value make_scalar(const at::Scalar& number, torch::ScalarType dtype) {
  // The one of what is repeated is not asked for here.
  if (Repetition* const repetition = Repetition::here(); repetition != nullptr && repetition->repeats()) {
    repetition->spoil();
  }
  if (sharing != nullptr) {
    if (std::shared_ptr<Node> known = sharing->find(number, dtype)) return {std::move(known), 0};
  }
  auto node = std::make_shared<Node>();
  node->op = kScalarOp;
  node->outputs = {{dtype, {}}};
  node->number = number;
  if (collecting != nullptr) collecting->nodes_.push_back(node);
  if (sharing != nullptr) {
    sharing->known_.push_back(node);
    sharing->next_ = sharing->known_.size();
  }
  return {std::move(node), 0};
}

}  // namespace cohort::record
