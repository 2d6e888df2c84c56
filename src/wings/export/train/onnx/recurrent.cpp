// LSTM and GRU over whole sequences.
#include <ATen/Functions.h>

#include "wings/export/train/onnx/rules.h"

namespace cohort::exports {

namespace {

// A recurrent operation as LibTorch has it, of several layers and one direction or two.
struct Recurrent {
  const char* operation;            // ONNX's
  Sizes order;                      // which of LibTorch's gates stands where in ONNX's weights
  std::vector<std::size_t> states;  // their numbers
  std::size_t weights;              // the input with the list of all weights, and then the options
};

// Puts the rows of the gates in the order of ONNX.
torch::Tensor in_order(const torch::Tensor& weight, const Sizes& order) {
  const std::vector<torch::Tensor> gates = weight.detach().chunk(static_cast<int64_t>(order.size()), 0);
  std::vector<torch::Tensor> ordered;
  for (const int64_t gate : order) ordered.push_back(gates[static_cast<std::size_t>(gate)]);
  return at::cat(ordered, 0);
}

class RecurrentWriter {
 public:
  RecurrentWriter(const TracedOperation& op, const Recurrent& how) : op_(op), how_(how) {
    const std::size_t options = how.weights + 1;
    biased_ = op.flag(options);
    layers_ = op.integer(options + 1);
    if (op.flag(options + 3)) {
      if (op.number(options + 2) != 0.0) op.refuse("drops values, as in training");
    }
    directions_ = op.flag(options + 4) ? 2 : 1;
    batch_first_ = op.flag(options + 5);
  }

  void operator()() {
    Name x = batch_first_ ? swapped(op_.x(0), 3) : op_.x(0);
    std::vector<Names> last(how_.states.size());
    for (int64_t layer = 0; layer < layers_; ++layer) {
      const Names results = lower_layer(x, layer);
      // [steps, directions, batch, size] -> [steps, batch, directions * size]
      const Name turned = op_.add("Transpose", {results[0]}, {{"perm", Sizes{0, 2, 1, 3}}});
      x = op_.add("Reshape", {turned, op_.to.integers({0, 0, -1})});
      for (std::size_t state = 0; state < last.size(); ++state) last[state].push_back(results[1 + state]);
    }
    op_.to.give(op_.node.output(0), batch_first_ ? swapped(x, 3) : x);
    for (std::size_t state = 0; state < last.size(); ++state) {
      if (op_.node.output(1 + state)->uses().empty()) continue;
      op_.to.give(op_.node.output(1 + state), op_.add("Concat", last[state], {{"axis", int64_t{0}}}));
    }
  }

 private:
  Name swapped(const Name& x, int64_t rank) const {
    Sizes order;
    for (int64_t dim = 0; dim < rank; ++dim) order.push_back(dim);
    std::swap(order[0], order[1]);
    return op_.add("Transpose", {x}, {{"perm", order}});
  }

  torch::Tensor weight(int64_t layer, int64_t direction, std::size_t which) const {
    const std::vector<const torch::jit::Value*> all = op_.to.list(op_.in(how_.weights));
    const std::size_t each = biased_ ? 4 : 2;
    const auto place = static_cast<std::size_t>(layer * directions_ + direction) * each + which;
    if (place >= all.size() || all.size() != static_cast<std::size_t>(layers_ * directions_) * each) {
      op_.refuse("with a projection has no form in ONNX here");
    }
    const torch::Tensor values = op_.to.known_tensor(all[place]);
    if (!values.defined()) op_.refuse("has weights that are computed, wanted parameters");
    return in_order(values, how_.order);
  }

  // Returns the weights of all directions of a layer.
  Name weights(int64_t layer, std::size_t which, bool doubled) const {
    std::vector<torch::Tensor> each;
    for (int64_t direction = 0; direction < directions_; ++direction) {
      torch::Tensor values = weight(layer, direction, which);
      if (doubled) values = at::cat({values, weight(layer, direction, which + 1)}, 0);
      each.push_back(values);
    }
    return op_.to.constant(at::stack(each, 0));
  }

  Names lower_layer(const Name& x, int64_t layer) const {
    Names inputs = {x, weights(layer, 0, false), weights(layer, 1, false), biased_ ? weights(layer, 2, true) : Name(),
                    ""};
    Attributes attributes = {{"hidden_size", hidden_size()},
                             {"direction", std::string(directions_ == 2 ? "bidirectional" : "forward")}};
    if (std::string(how_.operation) == "GRU") attributes.emplace_back("linear_before_reset", int64_t{1});
    for (const std::size_t state : how_.states) {
      inputs.push_back(op_.add("Slice", {state_name(state), op_.to.integers({layer * directions_}),
                                         op_.to.integers({(layer + 1) * directions_}), op_.to.integers({0})}));
    }
    return op_.to.add_many(how_.operation, inputs, attributes, 1 + how_.states.size());
  }

  // An LSTM has a list of two states, a GRU has one state.
  Name state_name(std::size_t state) const {
    if (op_.is_tensor(1)) return op_.x(1);
    return op_.to.tensor(op_.to.list(op_.in(1))[state]);
  }

  int64_t hidden_size() const {
    const std::vector<const torch::jit::Value*> all = op_.to.list(op_.in(how_.weights));
    return op_.to.known_tensor(all[1]).size(1);
  }

  const TracedOperation& op_;
  const Recurrent& how_;
  bool biased_ = true, batch_first_ = false;
  int64_t layers_ = 1, directions_ = 1;
};

// lstm(x, states, weights, biases, layers, dropout, training, bidirectional, batch_first)
void lstm(const TracedOperation& op) {
  if (!op.is_tensor(0) || op.is_tensor(2)) op.refuse("of packed sequences has no form in ONNX here");
  const Recurrent how = {.operation = "LSTM", .order = {0, 3, 1, 2}, .states = {0, 1}, .weights = 2};
  RecurrentWriter(op, how)();
}

// gru(x, state, weights, biases, layers, dropout, training, bidirectional, batch_first)
void gru(const TracedOperation& op) {
  if (!op.is_tensor(0) || op.is_tensor(2)) op.refuse("of packed sequences has no form in ONNX here");
  const Recurrent how = {.operation = "GRU", .order = {1, 0, 2}, .states = {0}, .weights = 2};
  RecurrentWriter(op, how)();
}

}  // namespace

void add_recurrent_rules(Rules& rules) {
  rules.insert({{"aten::lstm", lstm}, {"aten::gru", gru}});
}

}  // namespace cohort::exports
