// Recurrent layers that are made of cells: a cell computes one step of a sequence, RNN runs it over all steps.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/train/layers/graph_layer.h"

namespace cohort {

// The values that a cell keeps during one call, such as masks of dropout, which all steps have in common.
struct RNNCellMemo {
  std::vector<torch::Tensor> tensors = {};  // empty before the first step
  std::vector<RNNCellMemo> cells = {};      // one for each cell that a cell consists of
};

// The module of a cell. As a layer of its own it computes one step.
class RNNCellModule : public LayerModule {
 public:
  // Returns the output of a step x, [batch, ...], and puts the states after it into "states". No states stand for
  // zeros. The memo is the same for all steps of a call.
  virtual torch::Tensor step(const torch::Tensor& x, std::vector<torch::Tensor>& states, RNNCellMemo& memo) = 0;

  torch::Tensor forward(const torch::Tensor& x) final;
};

// A sort of cell. Derive from it for cells of your own. Shapes are those of one step.
class RNNCellKind : public LayerKind {
 public:
  // Returns the shapes of the states, without the batch.
  virtual std::vector<Shape> state_shapes(const BuildContext& context) const = 0;
  // Makes the module, after output_shape() of the same context has passed.
  virtual std::shared_ptr<RNNCellModule> build_cell(const BuildContext& context) const = 0;

  std::shared_ptr<LayerModule> build(const BuildContext& context) const final { return build_cell(context); }
};

// Cells take steps [batch, inputs]. Their parameters are weight_ih [gates * units, inputs], weight_hh [gates * units,
// units], and bias [gates * units], if they have no others. The masks of dropout are the same for all steps and gates.
// InvalidArgument: units is not positive, or a share is not in [0, 1).

struct SimpleRNNCellOptions {
  int64_t units = 0;                                             // size of the state; needed
  Activation activation = Activation::kTanh;                     // applied to the new values
  bool use_bias = true;                                          // biases are added
  Initializer kernel_initializer = Initializer::kGlorotUniform;  // the initial values of weight_ih
  Initializer recurrent_initializer = Initializer::kOrthogonal;  // the initial values of weight_hh
  Initializer bias_initializer = Initializer::kZeros;            // the initial values of the biases
  Regularizer kernel_regularizer = {};                           // the cost of weight_ih in the loss
  Regularizer recurrent_regularizer = {};                        // the cost of weight_hh in the loss
  Regularizer bias_regularizer = {};                             // the cost of the biases in the loss
  Constraint kernel_constraint = {};                             // the condition of weight_ih after each update
  Constraint recurrent_constraint = {};                          // the condition of weight_hh after each update
  Constraint bias_constraint = {};                               // the condition of the biases after each update
  double dropout = 0.0;            // the share of inputs that are set to zero while training, in [0, 1)
  double recurrent_dropout = 0.0;  // the share of the state that is set to zero in its product, in [0, 1)
  std::string name = {};           // empty: the model gives one
  bool trainable = true;           // its parameters learn
};
// activation(W x + U h + b); one state, which is the output.
Layer SimpleRNNCell(const SimpleRNNCellOptions& options);

struct LSTMCellOptions {
  int64_t units = 0;                                             // size of the state; needed
  Activation activation = Activation::kTanh;                     // applied to the new values
  Activation recurrent_activation = Activation::kSigmoid;        // applied to the gates
  bool use_bias = true;                                          // biases are added
  bool unit_forget_bias = true;                                  // the forget gate's bias starts as ones
  Initializer kernel_initializer = Initializer::kGlorotUniform;  // the initial values of weight_ih
  Initializer recurrent_initializer = Initializer::kOrthogonal;  // the initial values of weight_hh
  Initializer bias_initializer = Initializer::kZeros;            // the initial values of the biases
  Regularizer kernel_regularizer = {};                           // the cost of weight_ih in the loss
  Regularizer recurrent_regularizer = {};                        // the cost of weight_hh in the loss
  Regularizer bias_regularizer = {};                             // the cost of the biases in the loss
  Constraint kernel_constraint = {};                             // the condition of weight_ih after each update
  Constraint recurrent_constraint = {};                          // the condition of weight_hh after each update
  Constraint bias_constraint = {};                               // the condition of the biases after each update
  double dropout = 0.0;            // the share of inputs that are set to zero while training, in [0, 1)
  double recurrent_dropout = 0.0;  // the share of the state that is set to zero in its product, in [0, 1)
  std::string name = {};           // empty: the model gives one
  bool trainable = true;           // its parameters learn
};
// Hochreiter and Schmidhuber (1997); gates in the order input, forget, cell, output; the states are the output and the
// cell.
Layer LSTMCell(const LSTMCellOptions& options);

struct GRUCellOptions {
  int64_t units = 0;                                       // size of the state; needed
  Activation activation = Activation::kTanh;               // applied to the new values
  Activation recurrent_activation = Activation::kSigmoid;  // applied to the gates
  bool use_bias = true;                                    // biases are added
  bool reset_after = true;                                 // the reset gate is applied after the product with weight_hh
  Initializer kernel_initializer = Initializer::kGlorotUniform;  // the initial values of weight_ih
  Initializer recurrent_initializer = Initializer::kOrthogonal;  // the initial values of weight_hh
  Initializer bias_initializer = Initializer::kZeros;            // the initial values of the biases
  Regularizer kernel_regularizer = {};                           // the cost of weight_ih in the loss
  Regularizer recurrent_regularizer = {};                        // the cost of weight_hh in the loss
  Regularizer bias_regularizer = {};                             // the cost of the biases in the loss
  Constraint kernel_constraint = {};                             // the condition of weight_ih after each update
  Constraint recurrent_constraint = {};                          // the condition of weight_hh after each update
  Constraint bias_constraint = {};                               // the condition of the biases after each update
  double dropout = 0.0;            // the share of inputs that are set to zero while training, in [0, 1)
  double recurrent_dropout = 0.0;  // the share of the state that is set to zero in its product, in [0, 1)
  std::string name = {};           // empty: the model gives one
  bool trainable = true;           // its parameters learn
};
// Cho et al. (2014); gates in the order reset, update, new; one state, which is the output. Parameters are bias_ih and,
// if reset_after is true, bias_hh, both [3 * units].
Layer GRUCell(const GRUCellOptions& options);

// Makes one cell of several: the output of each is the input of the next. Parameters cell_0.*, cell_1.*, ...
// InvalidArgument: there is no cell, or a layer that is not a cell.
Layer StackedRNNCells(std::vector<Layer> cells);

struct RNNOptions {
  bool return_sequences = false;      // [batch, steps, ...] instead of the last step's [batch, ...]
  bool return_state = false;          // the last states are further outputs
  bool go_backwards = false;          // goes from the last step to the first, in which order the outputs are
  bool zero_output_for_mask = false;  // the output of a masked step is zeros instead of the one before it
  std::string name = {};              // empty: the model gives one
  bool trainable = true;              // its parameters learn
};
// Runs a cell over the steps of sequences [batch, steps, ...]. Further inputs are the states before the first step, all
// or none; without them the states are zeros. A masked step leaves the states as they are. Parameters cell.*.
// InvalidArgument: the layer is not a cell.
Layer RNN(const Layer& cell, const RNNOptions& options = {});

struct SimpleRNNOptions {
  int64_t units = 0;                                             // size of the state; needed
  Activation activation = Activation::kTanh;                     // applied to the new values
  bool use_bias = true;                                          // biases are added
  Initializer kernel_initializer = Initializer::kGlorotUniform;  // the initial values of weight_ih
  Initializer recurrent_initializer = Initializer::kOrthogonal;  // the initial values of weight_hh
  Initializer bias_initializer = Initializer::kZeros;            // the initial values of the biases
  Regularizer kernel_regularizer = {};                           // the cost of weight_ih in the loss
  Regularizer recurrent_regularizer = {};                        // the cost of weight_hh in the loss
  Regularizer bias_regularizer = {};                             // the cost of the biases in the loss
  Constraint kernel_constraint = {};                             // the condition of weight_ih after each update
  Constraint recurrent_constraint = {};                          // the condition of weight_hh after each update
  Constraint bias_constraint = {};                               // the condition of the biases after each update
  double dropout = 0.0;               // the share of inputs that are set to zero while training, in [0, 1)
  double recurrent_dropout = 0.0;     // the share of the state that is set to zero in its product, in [0, 1)
  bool return_sequences = false;      // [batch, steps, ...] instead of the last step's [batch, ...]
  bool return_state = false;          // the last states are further outputs
  bool go_backwards = false;          // goes from the last step to the first, in which order the outputs are
  bool zero_output_for_mask = false;  // the output of a masked step is zeros instead of the one before it
  std::string name = {};              // empty: the model gives one
  bool trainable = true;              // its parameters learn
};
// RNN with a SimpleRNNCell: sequences are [batch, steps, inputs].
Layer SimpleRNN(const SimpleRNNOptions& options);
Layer SimpleRNN(int64_t units);

struct BidirectionalOptions {
  // The way in which the outputs of the two directions become one: side by side, or elementwise. kNone: they stay two
  // outputs.
  enum class Merge { kConcat, kSum, kMul, kAve, kNone };

  Merge merge_mode = Merge::kConcat;  // the way that is taken
  std::optional<Layer> backward_layer =
      std::nullopt;       // goes the other way; nothing: the layer with go_backwards turned
  std::string name = {};  // empty: the model gives one
};
// Runs a recurrent layer (LSTM, GRU, SimpleRNN, RNN) in both directions, with parameters of its own in each ("forward"
// and "backward"). In sequences the outputs are zeros at masked steps, as Keras'. With return_state the states of both
// directions are further outputs. Further inputs are the states before the first step, those of "forward" first.
// InvalidArgument: another sort of layer, or the two differ in return_sequences, return_state or trainable, do not
// differ in go_backwards, or have outputs that do not fit each other.
Layer Bidirectional(const Layer& layer, const BidirectionalOptions& options = {});

struct ConvLSTM2DOptions {
  int64_t filters = 0;                        // channels of the output; needed
  Size2 kernel_size = 0;                      // needed
  Size2 strides = 1;                          // step of the kernel over the inputs
  Padding padding = Padding::kValid;          // the border around the inputs; states have kSame
  bool channels_first = true;                 // false: the channels of images come last, also in outputs and states
  Size2 dilation_rate = 1;                    // of the kernel over the inputs; not together with strides above 1
  Activation activation = Activation::kTanh;  // applied to the new values
  Activation recurrent_activation = Activation::kSigmoid;        // applied to the gates
  bool use_bias = true;                                          // a bias is added
  bool unit_forget_bias = true;                                  // the forget gate's bias starts as ones
  Initializer kernel_initializer = Initializer::kGlorotUniform;  // the initial values of weight_ih
  Initializer recurrent_initializer = Initializer::kOrthogonal;  // the initial values of weight_hh
  Initializer bias_initializer = Initializer::kZeros;            // the initial values of the bias
  Regularizer kernel_regularizer = {};                           // the cost of weight_ih in the loss
  Regularizer recurrent_regularizer = {};                        // the cost of weight_hh in the loss
  Regularizer bias_regularizer = {};                             // the cost of the bias in the loss
  Constraint kernel_constraint = {};                             // the condition of weight_ih after each update
  Constraint recurrent_constraint = {};                          // the condition of weight_hh after each update
  Constraint bias_constraint = {};                               // the condition of the bias after each update
  double dropout = 0.0;               // the share of inputs that are set to zero while training, in [0, 1)
  double recurrent_dropout = 0.0;     // the share of the state that is set to zero in its product, in [0, 1)
  bool return_sequences = false;      // [batch, steps, ...] instead of the last step's [batch, ...]
  bool return_state = false;          // the last states are further outputs
  bool go_backwards = false;          // goes from the last step to the first, in which order the outputs are
  bool zero_output_for_mask = false;  // the output of a masked step is zeros instead of the one before it
  std::string name = {};              // empty: the model gives one
  bool trainable = true;              // its parameters learn
};
// An LSTM whose products are convolutions (Shi et al., 2015): [batch, steps, channels, height, width] -> [batch,
// filters, height', width'], or with the steps; the channels may come last. Parameters cell.weight_ih [4 * filters,
// channels, kh, kw], cell.weight_hh [4 * filters, filters, kh, kw] and cell.bias [4 * filters]; gates and states as
// LSTMCell's. InvalidArgument: a size is not positive, a share is not in [0, 1), or padding is kCausal.
Layer ConvLSTM2D(const ConvLSTM2DOptions& options);

}  // namespace cohort
