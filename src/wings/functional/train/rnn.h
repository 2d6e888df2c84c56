// What RNN, its presets and the cells have in common.
#pragma once

#include <ATen/Functions.h>

#include <any>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/train/layers/rnn.h"
#include "train/layers/support.h"

namespace cohort {

// A preset of RNN: the names of the sort, and what it was made with (LayerKind::options()).
struct RecurrentSort {
  std::string_view type;
  std::string_view base_name;
  std::any options;
};

// The cell, one, and the options that RNN was made with.
struct CellOptions {
  std::vector<Layer> cell;
  RNNOptions rnn;
};

// The layer and the options that Bidirectional was made with.
struct BidirectionalParts {
  Layer layer;
  BidirectionalOptions options;
};

// Makes the layer that runs a cell.
Layer make_rnn(RecurrentSort sort, std::shared_ptr<const RNNCellKind> cell, const RNNOptions& options);

// Returns the sort of a layer as that of a cell. InvalidArgument: it is none.
std::shared_ptr<const RNNCellKind> cell_kind(std::string_view asking, const Layer& layer);

// Fails with InvalidArgument unless the inputs behind the first one are states of these shapes, or none.
void check_state_shapes(const std::string& layer, std::string_view type, const std::vector<Shape>& inputs,
                        const std::vector<Shape>& states);
// The same for how many a call has.
void check_state_count(const std::string& layer, std::string_view type, std::size_t came, std::size_t wanted);

// The shares that dropout sets to zero.
struct CellDropout {
  double input = 0.0;
  double state = 0.0;
};

// Draws the masks of dropout for x and for a state before the first step: the memo has two tensors then, which are
// undefined where there is none.
inline void draw_masks(RNNCellMemo& memo, bool training, const torch::Tensor& x, const torch::Tensor& state,
                       const CellDropout& dropout) {
  if (!memo.tensors.empty()) return;
  const auto mask = [&](const torch::Tensor& like, double rate) {
    return training && rate > 0.0 ? drop_out(at::ones_like(like.detach()), rate) : torch::Tensor();
  };
  memo.tensors = {mask(x, dropout.input), mask(state, dropout.state)};
}

inline torch::Tensor masked(const torch::Tensor& x, const torch::Tensor& mask) {
  return mask.defined() ? x * mask : x;
}

// Fails with InvalidArgument for a share that is not in [0, 1).
inline void check_dropout(std::string_view type, const CellDropout& dropout) {
  for (const auto& [name, rate] :
       {std::pair("dropout", dropout.input), std::pair("recurrent_dropout", dropout.state)}) {
    if (!(rate >= 0.0 && rate < 1.0)) fail_option(type, name, " must be in [0, 1), got ", rate);
  }
}

// Takes over the options of RNN that its presets have, too.
template <typename Options>
RNNOptions rnn_options(const Options& options) {
  return {.return_sequences = options.return_sequences,
          .return_state = options.return_state,
          .go_backwards = options.go_backwards,
          .zero_output_for_mask = options.zero_output_for_mask,
          .name = options.name,
          .trainable = options.trainable};
}

}  // namespace cohort
