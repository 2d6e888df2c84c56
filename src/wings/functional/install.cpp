// Tells files of the layers of this wing.
#include "base/extension.h"
#include "cohort/train/layers/dot_attention.h"
#include "cohort/train/layers/merging.h"
#include "train/layers/layer_row.h"
#include "wings/functional/train/rnn.h"

namespace cohort {

inline constexpr auto option_names(DotProductAttentionOptions::ScoreMode /*of*/) {
  return std::to_array<std::string_view>({"dot", "concat"});
}

namespace {

LayerRow rnn_row() {
  const auto tell = [](const CellOptions& given) {
    LayerConfig config = {{"cell", given.cell}};
    each_option(given.rnn, [&](std::string_view name, const auto& option) {
      config.emplace_back(std::string(name), option_value(option));
    });
    return config;
  };
  return row_of<CellOptions>("RNN", tell, [](const LayerConfig& config) {
    CellOptions given;
    LayerConfig rest;
    for (const auto& option : config) {
      if (option.first == "cell") {
        set_option("cell", option.second, given.cell);
      } else {
        rest.push_back(option);
      }
    }
    set_options("RNN", rest, given.rnn);
    if (given.cell.size() == 1) return RNN(given.cell.front(), given.rnn);
    fail<InvalidArgument>("[layers] RNN: cell has ", given.cell.size(), " layers, wanted one");
  });
}

}  // namespace

void install_functional() {
  extend(layer_row<ConcatenateOptions>("Concatenate", Concatenate));
  extend(layer_row<MergeOptions>("Add", Add));
  extend(layer_row<MergeOptions>("Subtract", Subtract));
  extend(layer_row<MergeOptions>("Multiply", Multiply));
  extend(layer_row<MergeOptions>("Average", Average));
  extend(layer_row<MergeOptions>("Maximum", Maximum));
  extend(layer_row<MergeOptions>("Minimum", Minimum));
  extend(layer_row<DotOptions>("Dot", Dot));
  extend(layer_row<DotProductAttentionOptions>("DotProductAttention", DotProductAttention));
  extend(layer_row<AdditiveAttentionOptions>("AdditiveAttention", AdditiveAttention));
  extend(layer_row<SimpleRNNOptions>("SimpleRNN", SimpleRNN));
  extend(layer_row<SimpleRNNCellOptions>("SimpleRNNCell", SimpleRNNCell));
  extend(layer_row<LSTMCellOptions>("LSTMCell", LSTMCell));
  extend(layer_row<GRUCellOptions>("GRUCell", GRUCell));
  extend(rnn_row());
  extend(layer_row<ConvLSTM2DOptions>("ConvLSTM2D", ConvLSTM2D));
}

}  // namespace cohort
