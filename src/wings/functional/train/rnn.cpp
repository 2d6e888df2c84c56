// RNN: a cell over the steps of a sequence.
#include "wings/functional/train/rnn.h"

#include <ATen/Functions.h>

namespace cohort {

torch::Tensor RNNCellModule::forward(const torch::Tensor& x) {
  std::vector<torch::Tensor> states;
  RNNCellMemo memo;
  return step(x, states, memo);
}

namespace {

BuildContext context_of_step(const BuildContext& context, const Shape& sequence) {
  BuildContext step = context;
  step.input = Shape(sequence.begin() + 1, sequence.end());
  return step;
}

class RnnModule final : public GraphLayerModule {
 public:
  RnnModule(std::string_view type, const RNNOptions& options, const RNNCellKind& cell, const BuildContext& context)
      : type_(type),
        options_(options),
        name_(context.name),
        rank_(static_cast<int64_t>(context.input.size()) + 1),
        states_(cell.state_shapes(context_of_step(context, context.input)).size()),
        cell_(register_module("cell", cell.build_cell(context_of_step(context, context.input)))) {}

  LayerValues forward_values(const LayerValues& inputs) override {
    const torch::Tensor& x = inputs.tensors.front();
    if (x.dim() != rank_ || !x.is_floating_point() || x.size(1) == 0) {
      fail_called(name_, type_, x, c10::str("floating point sequences of one step or more, of ", rank_, " dimensions"));
    }
    const torch::Tensor mask = inputs.masks.empty() ? torch::Tensor() : inputs.masks.front();
    std::vector<torch::Tensor> states(inputs.tensors.begin() + 1, inputs.tensors.end());
    check_state_count(name_, type_, states.size(), states_);
    const torch::Tensor output = run(x, mask, states);
    LayerValues outputs{.tensors = {output}, .masks = {options_.return_sequences ? mask : torch::Tensor()}};
    if (options_.return_state) outputs.tensors.insert(outputs.tensors.end(), states.begin(), states.end());
    outputs.masks.resize(outputs.tensors.size());
    return outputs;
  }

  torch::Tensor mask_of(const torch::Tensor& /*x*/, const torch::Tensor& mask) override {
    return options_.return_sequences ? mask : torch::Tensor();
  }
  torch::Tensor penalty() const override { return cell_->penalty(); }

 private:
  // Returns the output, and leaves the last states in "states".
  torch::Tensor run(const torch::Tensor& x, const torch::Tensor& mask, std::vector<torch::Tensor>& states) {
    const int64_t steps = x.size(1);
    RNNCellMemo memo;
    std::vector<torch::Tensor> outputs;
    torch::Tensor last;
    for (int64_t i = 0; i < steps; ++i) {
      const int64_t at = options_.go_backwards ? steps - 1 - i : i;
      std::vector<torch::Tensor> next = states;
      torch::Tensor output = cell_->step(x.select(1, at), next, memo);
      if (mask.defined()) {
        const torch::Tensor counts = mask.select(1, at);
        for (std::size_t s = 0; s < next.size(); ++s) {
          next[s] = where_counts(counts, next[s], states.empty() ? at::zeros_like(next[s]) : states[s]);
        }
        const bool repeats = last.defined() && !options_.zero_output_for_mask;
        output = where_counts(counts, output, repeats ? last : at::zeros_like(output));
      }
      states = std::move(next);
      last = output;
      if (options_.return_sequences) outputs.push_back(output);
    }
    return options_.return_sequences ? at::stack(outputs, 1) : last;
  }

  static torch::Tensor where_counts(const torch::Tensor& counts, const torch::Tensor& yes, const torch::Tensor& no) {
    std::vector<int64_t> shape(static_cast<std::size_t>(yes.dim()), 1);
    shape.front() = counts.size(0);
    return at::where(counts.view(shape), yes, no);
  }

  std::string_view type_;
  RNNOptions options_;
  std::string name_;
  int64_t rank_;
  std::size_t states_;  // how many the cell has
  std::shared_ptr<RNNCellModule> cell_;
};

class RnnKind final : public GraphLayerKind {
 public:
  RnnKind(RecurrentSort sort, std::shared_ptr<const RNNCellKind> cell, RNNOptions options)
      : sort_(std::move(sort)), cell_(std::move(cell)), options_(std::move(options)) {}
  std::string_view type() const override { return sort_.type; }
  std::string_view base_name() const override { return sort_.base_name; }

  std::vector<Shape> output_shapes(const BuildContext& context, const std::vector<Shape>& inputs) const override {
    const Shape& sequence = inputs.front();
    if (sequence.size() < 2) {
      fail_input(context.name, type(), to_text(sequence) + " an example", "[steps, ...]");
    }
    const BuildContext step = context_of_step(context, sequence);
    Shape output = cell_->output_shape(step);
    if (options_.return_sequences) output.insert(output.begin(), sequence.front());
    const std::vector<Shape> states = cell_->state_shapes(step);
    check_state_shapes(context.name, type(), inputs, states);
    std::vector<Shape> outputs = {std::move(output)};
    if (options_.return_state) outputs.insert(outputs.end(), states.begin(), states.end());
    return outputs;
  }
  std::shared_ptr<GraphLayerModule> build_for(const BuildContext& context,
                                              const std::vector<Shape>& inputs) const override {
    BuildContext own = context;
    own.input = inputs.front();
    return std::make_shared<RnnModule>(type(), options_, *cell_, own);
  }

 private:
  RecurrentSort sort_;
  std::shared_ptr<const RNNCellKind> cell_;
  RNNOptions options_;
};

}  // namespace

void check_state_count(const std::string& layer, std::string_view type, std::size_t came, std::size_t wanted) {
  if (came == 0 || came == wanted) return;
  fail<InvalidArgument>("[layers] ", layer, " (", type, "): got ", came, " initial states, wanted none or ", wanted);
}

void check_state_shapes(const std::string& layer, std::string_view type, const std::vector<Shape>& inputs,
                        const std::vector<Shape>& states) {
  if (inputs.size() == 1) return;
  bool fits = inputs.size() == states.size() + 1;
  for (std::size_t i = 0; fits && i < states.size(); ++i) {
    const Shape& given = inputs[i + 1];
    fits = given.size() == states[i].size();
    for (std::size_t d = 0; fits && d < given.size(); ++d) {
      fits = given[d] == states[i][d] || given[d] < 0 || states[i][d] < 0;
    }
  }
  if (fits) return;
  std::string came, wanted;
  for (std::size_t i = 1; i < inputs.size(); ++i) came += (came.empty() ? "" : ", ") + to_text(inputs[i]);
  for (const Shape& state : states) wanted += (wanted.empty() ? "" : ", ") + to_text(state);
  fail<InvalidArgument>("[layers] ", layer, " (", type, "): the initial states are ", came, " an example, wanted ",
                        wanted);
}

Layer make_rnn(RecurrentSort sort, std::shared_ptr<const RNNCellKind> cell, const RNNOptions& options) {
  std::any given = sort.options;
  return Layer(made_with<RnnKind>(given, std::move(sort), std::move(cell), options), options.name, options.trainable);
}

std::shared_ptr<const RNNCellKind> cell_kind(std::string_view asking, const Layer& layer) {
  auto kind = std::dynamic_pointer_cast<const RNNCellKind>(layer.shared_kind());
  if (!kind) fail_option(asking, "wants a cell, such as LSTMCell, got a ", layer.type());
  return kind;
}

Layer RNN(const Layer& cell, const RNNOptions& options) {
  return make_rnn({.type = "RNN", .base_name = "rnn", .options = CellOptions{.cell = {cell}, .rnn = options}},
                  cell_kind("RNN", cell), options);
}

}  // namespace cohort
