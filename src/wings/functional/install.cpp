// Tells files of the layers of this wing.
#include "base/extension.h"
#include "cohort/train/layers/attention.h"
#include "cohort/train/layers/dot_attention.h"
#include "cohort/train/layers/merging.h"
#include "cohort/train/layers/recurrent.h"
#include "train/layers/layer_row.h"
#include "wings/functional/train/dtype_policy.h"
#include "wings/functional/train/rnn.h"

namespace cohort {

inline constexpr auto option_names(DotProductAttentionOptions::ScoreMode /*of*/) {
  return std::to_array<std::string_view>({"dot", "concat"});
}

inline constexpr auto option_names(MultiHeadAttentionOptions::Masks /*of*/) {
  return std::to_array<std::string_view>({"zeros", "keras3"});
}
inline constexpr auto option_names(DTypePolicy /*of*/) {
  return std::to_array<std::string_view>({"mixed_float16", "mixed_bfloat16", "float16", "bfloat16"});
}
inline constexpr auto option_names(BidirectionalOptions::Merge /*of*/) {
  return std::to_array<std::string_view>({"concat", "sum", "mul", "ave", "none"});
}

namespace {

// Returns the only layer of an option. InvalidArgument: there is none, or there are several.
Layer only_layer(std::string_view type, std::string_view option, const OptionValue& value) {
  std::vector<Layer> layers;
  set_option(option, value, layers);
  if (layers.size() == 1) return layers.front();
  fail<InvalidArgument>("[layers] ", type, ": ", option, " has ", layers.size(), " layers, wanted one");
}

LayerRow policy_row() {
  const auto tell = [](const DTypePolicyParts& given) {
    return LayerConfig{{"layer", std::vector<Layer>{given.layer}}, {"policy", option_value(given.policy)}};
  };
  return row_of<DTypePolicyParts>("WithPolicy", tell, [](const LayerConfig& config) {
    DTypePolicy policy = DTypePolicy::kMixedFloat16;
    if (config.size() != 2 || config[0].first != "layer" || config[1].first != "policy") {
      fail<InvalidArgument>("[layers] WithPolicy has the options \"layer\" and \"policy\"");
    }
    set_option("policy", config[1].second, policy);
    return WithPolicy(only_layer("WithPolicy", "layer", config[0].second), policy);
  });
}

LayerRow bidirectional_row() {
  const auto tell = [](const BidirectionalParts& given) {
    const std::optional<Layer>& back = given.options.backward_layer;
    return LayerConfig{{"layer", std::vector<Layer>{given.layer}},
                       {"backward_layer", back ? std::vector<Layer>{*back} : OptionValue()},
                       {"merge_mode", option_value(given.options.merge_mode)}};
  };
  return row_of<BidirectionalParts>("Bidirectional", tell, [](const LayerConfig& config) {
    std::optional<Layer> layer;
    BidirectionalOptions options;
    for (const auto& [name, value] : config) {
      if (name == "layer") {
        layer = only_layer("Bidirectional", name, value);
      } else if (name == "backward_layer") {
        if (!std::holds_alternative<std::monostate>(value)) {
          options.backward_layer = only_layer("Bidirectional", name, value);
        }
      } else if (name == "merge_mode") {
        set_option(name, value, options.merge_mode);
      } else {
        fail<InvalidArgument>("[layers] Bidirectional has no option \"", name, "\"");
      }
    }
    if (layer.has_value()) return Bidirectional(*layer, options);
    fail<InvalidArgument>("[layers] Bidirectional: there is no option \"layer\"");
  });
}

LayerRow rnn_row() {
  const auto tell = [](const CellOptions& given) {
    LayerConfig config = {{"cell", given.cell}};
    each_option(given.rnn, [&](std::string_view name, const auto& option) {
      config.emplace_back(std::string(name), option_value(option));
    });
    return config;
  };
  return row_of<CellOptions>("RNN", tell, [](const LayerConfig& config) {
    std::optional<Layer> cell;
    RNNOptions options;
    LayerConfig rest;
    for (const auto& option : config) {
      if (option.first == "cell") {
        cell = only_layer("RNN", "cell", option.second);
      } else {
        rest.push_back(option);
      }
    }
    set_options("RNN", rest, options);
    if (cell.has_value()) return RNN(*cell, options);
    fail<InvalidArgument>("[layers] RNN: there is no option \"cell\"");
  });
}

LayerRow stacked_row() {
  const auto tell = [](const std::vector<Layer>& cells) { return LayerConfig{{"cells", cells}}; };
  return row_of<std::vector<Layer>>("StackedRNNCells", tell, [](const LayerConfig& config) {
    std::vector<Layer> cells;
    for (const auto& [name, value] : config) {
      if (name != "cells") fail<InvalidArgument>("[layers] StackedRNNCells has no option \"", name, "\"");
      set_option(name, value, cells);
    }
    return StackedRNNCells(std::move(cells));
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
  extend(layer_row<MultiHeadAttentionOptions>("MultiHeadAttention", MultiHeadAttention));
  extend(layer_row<AdditiveAttentionOptions>("AdditiveAttention", AdditiveAttention));
  extend(layer_row<LSTMOptions>("LSTM", LSTM));
  extend(layer_row<GRUOptions>("GRU", GRU));
  extend(layer_row<SimpleRNNOptions>("SimpleRNN", SimpleRNN));
  extend(layer_row<SimpleRNNCellOptions>("SimpleRNNCell", SimpleRNNCell));
  extend(layer_row<LSTMCellOptions>("LSTMCell", LSTMCell));
  extend(layer_row<GRUCellOptions>("GRUCell", GRUCell));
  extend(rnn_row());
  extend(stacked_row());
  extend(bidirectional_row());
  extend(policy_row());
  extend(layer_row<ConvLSTM2DOptions>("ConvLSTM2D", ConvLSTM2D));
}

}  // namespace cohort
