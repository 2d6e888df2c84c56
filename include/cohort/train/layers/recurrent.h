// Recurrent layers over sequences.
#pragma once

#include <cstdint>
#include <string>

#include "cohort/train/layers/layer.h"

namespace cohort {

// Common to LSTM and GRU: sequences are [batch, steps, inputs], and with a mask the steps that do not count leave the
// state, and the output, as they are (Keras). In a functional model the states before the first step may be further
// inputs, [batch, units]: an LSTM has two, the output's and the cell's, and a GRU one. Before the first step that
// counts the output is zeros then. Without such inputs the states start as zeros. With return_state the last states are
// further outputs (call_for_all()). Parameters are LibTorch's: weight_ih_l0 [gates * units, inputs], weight_hh_l0
// [gates * units, units], and bias_ih_l0 and bias_hh_l0 [gates * units]. Only the sum of an LSTM's two biases counts,
// so bias_hh_l0 is a buffer of zeros there, which files of weights may fill.

struct LSTMOptions {
  int64_t units = 0;              // size of the state; needed
  bool return_sequences = false;  // [batch, steps, units] instead of the last step's [batch, units]
  bool return_state = false;      // the last states are further outputs
  bool go_backwards = false;      // goes from the last step to the first
  // The output of a masked step is zeros instead of the state.
  bool zero_output_for_mask = false;
  bool use_bias = true;                                          // biases are added
  bool unit_forget_bias = true;                                  // the forget gates' bias_ih starts as ones
  Initializer kernel_initializer = Initializer::kGlorotUniform;  // the initial values of weight_ih
  Initializer recurrent_initializer = Initializer::kOrthogonal;  // the initial values of weight_hh
  Initializer bias_initializer = Initializer::kZeros;            // the initial values of bias_ih
  Regularizer kernel_regularizer = {};                           // the cost of weight_ih in the loss
  Regularizer recurrent_regularizer = {};                        // the cost of weight_hh in the loss
  Regularizer bias_regularizer = {};                             // the cost of bias_ih in the loss
  Constraint kernel_constraint = {};                             // the condition of weight_ih after each update
  Constraint recurrent_constraint = {};                          // the condition of weight_hh after each update
  Constraint bias_constraint = {};                               // the condition of bias_ih after each update
  std::string name = {};                                         // empty: the model gives one
  bool trainable = true;                                         // its parameters learn
};
// Hochreiter and Schmidhuber, "Long short-term memory" (1997); gates in the order input, forget, cell, output.
Layer LSTM(const LSTMOptions& options);
Layer LSTM(int64_t units);

struct GRUOptions {
  int64_t units = 0;              // size of the state; needed
  bool return_sequences = false;  // [batch, steps, units] instead of the last step's [batch, units]
  bool return_state = false;      // the last states are further outputs
  bool go_backwards = false;      // goes from the last step to the first
  // The output of a masked step is zeros instead of the state.
  bool zero_output_for_mask = false;
  bool use_bias = true;                                          // biases are added
  Initializer kernel_initializer = Initializer::kGlorotUniform;  // the initial values of weight_ih
  Initializer recurrent_initializer = Initializer::kOrthogonal;  // the initial values of weight_hh
  Initializer bias_initializer = Initializer::kZeros;            // the initial values of both biases
  Regularizer kernel_regularizer = {};                           // the cost of weight_ih in the loss
  Regularizer recurrent_regularizer = {};                        // the cost of weight_hh in the loss
  Regularizer bias_regularizer = {};                             // the cost of both biases in the loss
  Constraint kernel_constraint = {};                             // the condition of weight_ih after each update
  Constraint recurrent_constraint = {};                          // the condition of weight_hh after each update
  Constraint bias_constraint = {};                               // the condition of both biases after each update
  std::string name = {};                                         // empty: the model gives one
  bool trainable = true;                                         // its parameters learn
};
// Cho et al. (2014), with the reset gate after the product (Keras' reset_after); gates in the order reset, update, new.
Layer GRU(const GRUOptions& options);
Layer GRU(int64_t units);

}  // namespace cohort
