// The kind of the layers LSTM and GRU, which Bidirectional runs in both directions.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "cohort/train/layers/recurrent.h"

namespace cohort {

enum class RecurrentCell { kLstm, kGru };

// The part that the two have in common.
struct Recurrence {
  RecurrentCell cell = RecurrentCell::kLstm;
  int64_t units = 0;
  bool return_sequences = false;
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
};

// The layer and the options that Bidirectional was made with.
struct BidirectionalParts {
  Layer layer;
  BidirectionalOptions options;
};

class RecurrentKind final : public LayerKind {
 public:
  explicit RecurrentKind(Recurrence recurrence);
  std::string_view type() const override { return recurrence_.type(); }
  std::string_view base_name() const override { return recurrence_.cell == RecurrentCell::kLstm ? "lstm" : "gru"; }
  Shape output_shape(const BuildContext& context) const override;
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override;

  const Recurrence& recurrence() const { return recurrence_; }

 private:
  Recurrence recurrence_;
};

}  // namespace cohort
