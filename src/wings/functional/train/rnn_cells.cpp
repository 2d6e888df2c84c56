// SimpleRNNCell, LSTMCell and GRUCell, and several cells as one.
#include <ATen/Functions.h>

#include "train/layers/constraints.h"
#include "wings/functional/train/rnn.h"

namespace cohort {

namespace {

enum class CellSort { kSimple, kLstm, kGru };

// The options that the three have.
struct CellPlan {
  CellSort sort = CellSort::kSimple;
  int64_t units = 0;
  Activation activation;
  Activation recurrent_activation;
  bool use_bias = true;
  bool unit_forget_bias = false;
  bool reset_after = true;
  Initializer kernel_initializer = Initializer::kGlorotUniform;
  Initializer recurrent_initializer = Initializer::kOrthogonal;
  Initializer bias_initializer = Initializer::kZeros;
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint recurrent_constraint = {};
  Constraint bias_constraint = {};
  CellDropout dropout = {};

  std::string_view type() const {
    return sort == CellSort::kSimple ? "SimpleRNNCell" : sort == CellSort::kLstm ? "LSTMCell" : "GRUCell";
  }
  // Returns the number of rows of the weights.
  int64_t rows() const { return (sort == CellSort::kSimple ? 1 : sort == CellSort::kLstm ? 4 : 3) * units; }
};

class CellModule final : public RNNCellModule, public ConstrainedLayer {
 public:
  CellModule(const CellPlan& cell, const BuildContext& context)
      : cell_(cell), name_(context.name), inputs_(context.input[0]) {
    const int64_t rows = cell_.rows();
    input_weight_ = register_parameter("weight_ih", torch::empty({rows, inputs_}, context.dtype));
    cell_.kernel_initializer.fill(input_weight_, Fans::of_kernel({inputs_, rows}));
    state_weight_ = register_parameter("weight_hh", torch::empty({rows, cell_.units}, context.dtype));
    cell_.recurrent_initializer.fill(state_weight_, Fans::of_kernel({cell_.units, rows}));
    constrain_by(cell_.kernel_constraint, input_weight_);
    constrain_by(cell_.recurrent_constraint, state_weight_);
    if (cell_.use_bias) make_biases(context.dtype);
    constrain_by(cell_.bias_constraint, bias_);
    constrain_by(cell_.bias_constraint, state_bias_);
  }

  torch::Tensor step(const torch::Tensor& x, std::vector<torch::Tensor>& states, RNNCellMemo& memo) override {
    check_input(name_, cell_.type(), x, 2, 1, inputs_);
    if (states.empty()) {
      const torch::Tensor zeros = at::zeros({x.size(0), cell_.units}, x.options().requires_grad(false));
      states.assign(cell_.sort == CellSort::kLstm ? 2 : 1, zeros);
    }
    draw_masks(memo, is_training(), x, states[0], cell_.dropout);
    const torch::Tensor from_input = at::linear(masked(x, memo.tensors[0]), input_weight_, bias_);
    const torch::Tensor state = masked(states[0], memo.tensors[1]);
    switch (cell_.sort) {
      case CellSort::kLstm:
        lstm_step(from_input + at::linear(state, state_weight_), states);
        break;
      case CellSort::kGru:
        states[0] = gru_step(from_input, state, states[0]);
        break;
      default:
        states[0] = cell_.activation(from_input + at::linear(state, state_weight_));
    }
    return states[0];
  }

  torch::Tensor penalty() const override {
    return penalty_of({{cell_.kernel_regularizer, input_weight_},
                       {cell_.recurrent_regularizer, state_weight_},
                       {cell_.bias_regularizer, bias_},
                       {cell_.bias_regularizer, state_bias_}});
  }

 private:
  // The two biases of a GRU are one variable of Keras.
  void make_biases(torch::ScalarType dtype) {
    const int64_t rows = cell_.rows();
    const bool gru = cell_.sort == CellSort::kGru;
    const bool two = gru && cell_.reset_after;
    const std::vector<int64_t> shape = two ? std::vector<int64_t>{2, rows} : std::vector<int64_t>{rows};
    const torch::Tensor values = torch::empty(shape, dtype);
    cell_.bias_initializer.fill(values, Fans::of_kernel(shape));
    bias_ = register_parameter(gru ? "bias_ih" : "bias", two ? values[0].clone() : values);
    if (two) state_bias_ = register_parameter("bias_hh", values[1].clone());
    if (!cell_.unit_forget_bias) return;
    const torch::NoGradGuard no_grad;
    bias_.slice(0, cell_.units, 2 * cell_.units).fill_(1.0);
  }

  void lstm_step(const torch::Tensor& sums, std::vector<torch::Tensor>& states) const {
    const std::vector<torch::Tensor> gates = sums.chunk(4, 1);
    const Activation& open = cell_.recurrent_activation;
    states[1] = open(gates[1]) * states[1] + open(gates[0]) * cell_.activation(gates[2]);
    states[0] = open(gates[3]) * cell_.activation(states[1]);
  }

  // "multiplied" is the state as it goes into products.
  torch::Tensor gru_step(const torch::Tensor& from_input, const torch::Tensor& multiplied,
                         const torch::Tensor& state) const {
    const std::vector<torch::Tensor> x = from_input.chunk(3, 1);
    const int64_t units = cell_.units;
    const bool after = cell_.reset_after;
    const torch::Tensor weight = after ? state_weight_ : state_weight_.slice(0, 0, 2 * units);
    const torch::Tensor h = at::linear(multiplied, weight, state_bias_);
    const torch::Tensor reset = cell_.recurrent_activation(x[0] + h.slice(1, 0, units));
    const torch::Tensor update = cell_.recurrent_activation(x[1] + h.slice(1, units, 2 * units));
    const torch::Tensor recurrent = after
                                        ? reset * h.slice(1, 2 * units, 3 * units)
                                        : at::linear(reset * multiplied, state_weight_.slice(0, 2 * units, 3 * units));
    return update * state + (1 - update) * cell_.activation(x[2] + recurrent);
  }

  CellPlan cell_;
  std::string name_;
  int64_t inputs_;
  torch::Tensor input_weight_, state_weight_, bias_, state_bias_;
};

class CellKind final : public RNNCellKind {
 public:
  explicit CellKind(CellPlan cell) : cell_(std::move(cell)) {
    if (cell_.units <= 0) fail_option(type(), "units must be positive, got ", cell_.units);
    check_dropout(type(), cell_.dropout);
    if (cell_.sort == CellSort::kGru && cell_.reset_after) check_two_biases(type(), cell_.bias_constraint);
  }
  std::string_view type() const override { return cell_.type(); }
  std::string_view base_name() const override {
    return cell_.sort == CellSort::kSimple ? "simple_rnn_cell"
           : cell_.sort == CellSort::kLstm ? "lstm_cell"
                                           : "gru_cell";
  }
  Shape output_shape(const BuildContext& context) const override {
    if (context.input.size() == 1 && context.input[0] > 0) return {cell_.units};
    fail_input(context.name, type(), to_text(context.input) + " a step", "[inputs] with a number that is known");
  }
  std::vector<Shape> state_shapes(const BuildContext& /*context*/) const override {
    return std::vector<Shape>(cell_.sort == CellSort::kLstm ? 2 : 1, Shape{cell_.units});
  }
  std::shared_ptr<RNNCellModule> build_cell(const BuildContext& context) const override {
    return std::make_shared<CellModule>(cell_, context);
  }

 private:
  CellPlan cell_;
};

// Takes over the options that all cells and SimpleRNN have.
template <typename Options>
CellPlan cell_of(CellSort sort, const Options& options) {
  return {.sort = sort,
          .units = options.units,
          .activation = options.activation,
          .use_bias = options.use_bias,
          .kernel_initializer = options.kernel_initializer,
          .recurrent_initializer = options.recurrent_initializer,
          .bias_initializer = options.bias_initializer,
          .kernel_regularizer = options.kernel_regularizer,
          .recurrent_regularizer = options.recurrent_regularizer,
          .bias_regularizer = options.bias_regularizer,
          .kernel_constraint = options.kernel_constraint,
          .recurrent_constraint = options.recurrent_constraint,
          .bias_constraint = options.bias_constraint,
          .dropout = {.input = options.dropout, .state = options.recurrent_dropout}};
}

template <typename Options>
Layer make_cell(CellPlan cell, const Options& options) {
  return Layer(made_with<CellKind>(options, std::move(cell)), options.name, options.trainable);
}

}  // namespace

Layer SimpleRNNCell(const SimpleRNNCellOptions& options) {
  return make_cell(cell_of(CellSort::kSimple, options), options);
}

Layer LSTMCell(const LSTMCellOptions& options) {
  CellPlan cell = cell_of(CellSort::kLstm, options);
  cell.recurrent_activation = options.recurrent_activation;
  cell.unit_forget_bias = options.unit_forget_bias;
  return make_cell(std::move(cell), options);
}

Layer GRUCell(const GRUCellOptions& options) {
  CellPlan cell = cell_of(CellSort::kGru, options);
  cell.recurrent_activation = options.recurrent_activation;
  cell.reset_after = options.reset_after;
  return make_cell(std::move(cell), options);
}

Layer SimpleRNN(const SimpleRNNOptions& options) {
  return make_rnn({.type = "SimpleRNN", .base_name = "simple_rnn", .options = options},
                  std::make_shared<CellKind>(cell_of(CellSort::kSimple, options)), rnn_options(options));
}

Layer SimpleRNN(int64_t units) {
  return SimpleRNN(SimpleRNNOptions{.units = units});
}

}  // namespace cohort
