// LSTM and GRU. Whole sequences go through LibTorch's kernels; with a mask the cells are called step by step, and a
// step that does not count leaves the state as it is.
#include <ATen/Functions.h>

#include "cohort/train/layers/recurrent.h"
#include "train/layers/constraints.h"
#include "train/layers/support.h"
#include "wings/functional/train/rnn.h"

namespace cohort {

namespace {

enum class RecurrentCell { kLstm, kGru };

// The part that the two have in common.
struct Recurrence {
  RecurrentCell cell = RecurrentCell::kLstm;
  int64_t units = 0;
  bool return_sequences = false;
  bool return_state = false;
  bool go_backwards = false;
  bool use_bias = true;
  bool unit_forget_bias = false;
  bool zero_where_masked = false;  // the output of a masked step is zeros, not the state
  Initializer kernel_initializer = Initializer::kGlorotUniform;
  Initializer recurrent_initializer = Initializer::kOrthogonal;
  Initializer bias_initializer = Initializer::kZeros;
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint recurrent_constraint = {};
  Constraint bias_constraint = {};

  std::string_view type() const { return cell == RecurrentCell::kLstm ? "LSTM" : "GRU"; }
  // Returns the number of rows of the weights.
  int64_t rows() const { return (cell == RecurrentCell::kLstm ? 4 : 3) * units; }
  std::vector<Shape> state_shapes() const { return std::vector<Shape>(cell == RecurrentCell::kLstm ? 2 : 1, {units}); }
};

class RecurrentModule final : public GraphLayerModule, public ConstrainedLayer {
 public:
  RecurrentModule(Recurrence recurrence, const BuildContext& context)
      : recurrence_(std::move(recurrence)), name_(context.name), inputs_(context.input[1]) {
    const int64_t units = recurrence_.units;
    const int64_t rows = recurrence_.rows();
    input_weight_ = register_parameter("weight_ih_l0", torch::empty({rows, inputs_}, context.dtype));
    recurrence_.kernel_initializer.fill(input_weight_, Fans::of_kernel({inputs_, rows}));
    state_weight_ = register_parameter("weight_hh_l0", torch::empty({rows, units}, context.dtype));
    recurrence_.recurrent_initializer.fill(state_weight_, Fans::of_kernel({units, rows}));
    constrain_by(recurrence_.kernel_constraint, input_weight_);
    constrain_by(recurrence_.recurrent_constraint, state_weight_);
    if (recurrence_.use_bias) make_biases(context.dtype);
    constrain_by(recurrence_.bias_constraint, input_bias_);
    if (!is_lstm()) constrain_by(recurrence_.bias_constraint, state_bias_);
  }

  LayerValues forward_values(const LayerValues& inputs) override {
    const torch::Tensor& x = inputs.tensors.front();
    check(x);
    const torch::Tensor mask = inputs.masks.empty() ? torch::Tensor() : inputs.masks.front();
    std::vector<torch::Tensor> states = first_states(inputs);
    LayerValues outputs;
    if (x.numel() == 0) {
      outputs.tensors.push_back(no_output(x, states));
    } else {
      outputs.tensors.push_back(mask.defined() ? step_by_step(x, mask, inputs.tensors.size() == 1, states)
                                               : whole(x, states));
    }
    if (recurrence_.return_state) outputs.tensors.insert(outputs.tensors.end(), states.begin(), states.end());
    outputs.masks.resize(outputs.tensors.size());
    outputs.masks.front() = mask_of(x, mask);
    return outputs;
  }

  torch::Tensor mask_of(const torch::Tensor& /*x*/, const torch::Tensor& mask) override {
    if (!recurrence_.return_sequences) return {};
    return recurrence_.go_backwards && mask.defined() ? mask.flip({1}) : mask;
  }
  torch::Tensor penalty() const override {
    return penalty_of({{recurrence_.kernel_regularizer, input_weight_},
                       {recurrence_.recurrent_regularizer, state_weight_},
                       {recurrence_.bias_regularizer, input_bias_},
                       {recurrence_.bias_regularizer, is_lstm() ? torch::Tensor() : state_bias_}});
  }

 private:
  // Returns the output, and leaves the last states in "states".
  torch::Tensor whole(const torch::Tensor& input, std::vector<torch::Tensor>& states) const {
    const torch::Tensor x = recurrence_.go_backwards ? input.flip({1}) : input;
    std::vector<torch::Tensor> weights = {input_weight_, state_weight_};
    if (recurrence_.use_bias) weights.insert(weights.end(), {input_bias_, state_bias_});
    for (torch::Tensor& state : states) state = state.unsqueeze(0);
    torch::Tensor y;
    if (is_lstm()) {
      std::tie(y, states[0], states[1]) =
          at::lstm(x, states, weights, recurrence_.use_bias, /*num_layers=*/1, /*dropout=*/0.0, is_training(),
                   /*bidirectional=*/false, /*batch_first=*/true);
    } else {
      std::tie(y, states[0]) = at::gru(x, states[0], weights, recurrence_.use_bias, /*num_layers=*/1, /*dropout=*/0.0,
                                       is_training(), /*bidirectional=*/false, /*batch_first=*/true);
    }
    if (recurrence_.return_state) {
      for (torch::Tensor& state : states) state = state.squeeze(0);
    }
    return recurrence_.return_sequences ? y : y.select(1, y.size(1) - 1);
  }

  // The same where some steps do not count. The output of such a step is the one before it, and zeros at the beginning:
  // without initial states, the state.
  torch::Tensor step_by_step(const torch::Tensor& input, const torch::Tensor& mask, bool from_zeros,
                             std::vector<torch::Tensor>& states) const {
    const torch::Tensor counts = mask.unsqueeze(-1);
    torch::Tensor output = from_zeros ? states[0] : at::zeros_like(states[0]);
    std::vector<torch::Tensor> outputs;
    const int64_t steps = input.size(1);
    for (int64_t i = 0; i < steps; ++i) {
      const int64_t step = recurrence_.go_backwards ? steps - 1 - i : i;
      const torch::Tensor x = input.select(1, step);
      const torch::Tensor here = counts.select(1, step);
      torch::Tensor next, next_cell;
      if (is_lstm()) {
        std::tie(next, next_cell) = at::lstm_cell(x, states, input_weight_, state_weight_, input_bias_, state_bias_);
        states[1] = at::where(here, next_cell, states[1]);
      } else {
        next = at::gru_cell(x, states[0], input_weight_, state_weight_, input_bias_, state_bias_);
      }
      states[0] = at::where(here, next, states[0]);
      output = from_zeros ? states[0] : at::where(here, next, output);
      if (recurrence_.return_sequences) outputs.push_back(recurrence_.zero_where_masked ? output * here : output);
    }
    if (recurrence_.return_sequences) return at::stack(outputs, 1);
    const int64_t last = recurrence_.go_backwards ? 0 : steps - 1;
    return recurrence_.zero_where_masked ? output * counts.select(1, last) : output;
  }

  bool is_lstm() const { return recurrence_.cell == RecurrentCell::kLstm; }

  // LibTorch's kernels add two biases. Those of an LSTM are one number more than Keras has: the second one does not
  // learn, or a step would move their sum twice. A GRU multiplies between the two, and Keras has both, as one variable.
  void make_biases(torch::ScalarType dtype) {
    const int64_t rows = recurrence_.rows();
    if (is_lstm()) {
      input_bias_ = register_parameter("bias_ih_l0", torch::empty({rows}, dtype));
      state_bias_ = register_buffer("bias_hh_l0", torch::zeros({rows}, dtype));
      recurrence_.bias_initializer.fill(input_bias_, Fans::of_kernel({rows}));
    } else {
      const torch::Tensor both = torch::empty({2, rows}, dtype);
      recurrence_.bias_initializer.fill(both, Fans::of_kernel({2, rows}));
      input_bias_ = register_parameter("bias_ih_l0", both[0].clone());
      state_bias_ = register_parameter("bias_hh_l0", both[1].clone());
    }
    if (!recurrence_.unit_forget_bias) return;
    const torch::NoGradGuard no_grad;
    input_bias_.slice(0, recurrence_.units, 2 * recurrence_.units).fill_(1.0);
  }

  void check(const torch::Tensor& x) const {
    if (x.dim() == 3 && x.size(2) == inputs_ && x.is_floating_point()) return;
    fail_called(name_, recurrence_.type(), x, c10::str("floating point [batch, steps, ", inputs_, "]"));
  }
  std::vector<torch::Tensor> first_states(const LayerValues& inputs) const {
    const torch::Tensor& x = inputs.tensors.front();
    const std::size_t count = recurrence_.state_shapes().size();
    std::vector<torch::Tensor> states(inputs.tensors.begin() + 1, inputs.tensors.end());
    if (states.empty()) {
      states.assign(count, at::zeros({x.size(0), recurrence_.units}, x.options().requires_grad(false)));
    }
    check_state_count(name_, recurrence_.type(), states.size(), count);
    for (const torch::Tensor& state : states) {
      if (state.dim() == 2 && state.size(0) == x.size(0) && state.size(1) == recurrence_.units) continue;
      fail<InvalidArgument>("[layers] ", name_, " (", recurrence_.type(), "): an initial state is ", state.sizes(),
                            ", wanted [", x.size(0), ", ", recurrence_.units, "]");
    }
    return states;
  }
  // Returns the output for no examples, or for no steps, which leave the states as they are.
  torch::Tensor no_output(const torch::Tensor& x, std::vector<torch::Tensor>& states) const {
    std::vector<torch::Tensor> on = {x, input_weight_, state_weight_, input_bias_, state_bias_};
    on.insert(on.end(), states.begin(), states.end());
    if (x.size(0) == 0) {
      for (torch::Tensor& state : states) state = empty_from(on, {0, recurrence_.units});
    }
    if (recurrence_.return_sequences) return empty_from(on, {x.size(0), x.size(1), recurrence_.units});
    if (x.size(0) == 0) return empty_from(on, {0, recurrence_.units});
    fail_called(name_, recurrence_.type(), x, "sequences of one step or more");
  }

  Recurrence recurrence_;
  std::string name_;
  int64_t inputs_;
  torch::Tensor input_weight_, state_weight_, input_bias_, state_bias_;
};

class RecurrentKind final : public GraphLayerKind {
 public:
  explicit RecurrentKind(Recurrence recurrence);
  std::string_view type() const override { return recurrence_.type(); }
  std::string_view base_name() const override { return recurrence_.cell == RecurrentCell::kLstm ? "lstm" : "gru"; }
  std::vector<Shape> output_shapes(const BuildContext& context, const std::vector<Shape>& inputs) const override;
  std::shared_ptr<GraphLayerModule> build_for(const BuildContext& context,
                                              const std::vector<Shape>& inputs) const override {
    BuildContext own = context;
    own.input = inputs.front();
    return std::make_shared<RecurrentModule>(recurrence_, own);
  }

 private:
  Recurrence recurrence_;
};

template <typename Options>
Recurrence recurrence_of(RecurrentCell cell, const Options& options) {
  return {.cell = cell,
          .units = options.units,
          .return_sequences = options.return_sequences,
          .return_state = options.return_state,
          .go_backwards = options.go_backwards,
          .use_bias = options.use_bias,
          .zero_where_masked = options.zero_output_for_mask,
          .kernel_initializer = options.kernel_initializer,
          .recurrent_initializer = options.recurrent_initializer,
          .bias_initializer = options.bias_initializer,
          .kernel_regularizer = options.kernel_regularizer,
          .recurrent_regularizer = options.recurrent_regularizer,
          .bias_regularizer = options.bias_regularizer,
          .kernel_constraint = options.kernel_constraint,
          .recurrent_constraint = options.recurrent_constraint,
          .bias_constraint = options.bias_constraint};
}

RecurrentKind::RecurrentKind(Recurrence recurrence) : recurrence_(std::move(recurrence)) {
  if (recurrence_.units <= 0) fail_option(type(), "units must be positive, got ", recurrence_.units);
  if (recurrence_.cell == RecurrentCell::kGru) check_two_biases(type(), recurrence_.bias_constraint);
}

std::vector<Shape> RecurrentKind::output_shapes(const BuildContext& context, const std::vector<Shape>& inputs) const {
  const Shape& sequence = inputs.front();
  if (sequence.size() != 2 || sequence[1] <= 0) {
    fail_input(context.name, type(), to_text(sequence) + " an example",
               "[steps, inputs] with a number of inputs that is known");
  }
  const std::vector<Shape> states = recurrence_.state_shapes();
  check_state_shapes(context.name, type(), inputs, states);
  std::vector<Shape> outputs = {{recurrence_.units}};
  if (recurrence_.return_sequences) outputs.front().insert(outputs.front().begin(), sequence[0]);
  if (recurrence_.return_state) outputs.insert(outputs.end(), states.begin(), states.end());
  return outputs;
}

}  // namespace

Layer LSTM(const LSTMOptions& options) {
  Recurrence recurrence = recurrence_of(RecurrentCell::kLstm, options);
  recurrence.unit_forget_bias = options.unit_forget_bias;
  return Layer(made_with<RecurrentKind>(options, std::move(recurrence)), options.name, options.trainable);
}

Layer LSTM(int64_t units) {
  return LSTM(LSTMOptions{.units = units});
}

Layer GRU(const GRUOptions& options) {
  return Layer(made_with<RecurrentKind>(options, recurrence_of(RecurrentCell::kGru, options)), options.name,
               options.trainable);
}

Layer GRU(int64_t units) {
  return GRU(GRUOptions{.units = units});
}

}  // namespace cohort
