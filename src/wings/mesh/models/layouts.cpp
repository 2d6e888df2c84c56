#include "cohort/models/layouts.h"

#include "base/fail.h"

namespace cohort::layouts {

namespace {

std::vector<std::string> even_cut(const std::string& prefix, int64_t blocks, int chunks) {
  if (chunks < 1 || chunks > blocks) {
    fail<InvalidArgument>("[layouts] a model of ", blocks, " blocks has no ", chunks, " chunks, 1 to ", blocks,
                          " would fit");
  }
  std::vector<std::string> places;
  for (int chunk = 1; chunk < chunks; ++chunk) places.push_back(prefix + std::to_string(chunk * blocks / chunks));
  return places;
}

}  // namespace

LayoutMap transformer(const models::DecoderOptions& options, const std::string& axis, bool cuts_vocabulary) {
  const ParameterAxes columns = {axis, ""}, rows = {"", axis};
  LayoutMap layout{{"\\.(q|k|v|gate|up)_proj\\.weight$", columns}, {"\\.(o|down)_proj\\.weight$", rows}};
  if (options.attention_bias || options.qkv_bias) layout.add("\\.(q|k|v)_proj\\.bias$", {axis});
  if (options.mlp_bias) layout.add("\\.(gate|up)_proj\\.bias$", {axis});
  if (cuts_vocabulary) {
    layout.add(options.tie_word_embeddings ? "embed_tokens\\.weight$" : "(embed_tokens|lm_head)\\.weight$", columns);
  }
  if (options.lora.rank == 0) return layout;
  for (const std::string& name : options.lora.target_modules) {
    const bool by_rows = name == "o_proj" || name == "down_proj";
    layout.add("\\." + name + (by_rows ? "\\.lora_A\\.weight$" : "\\.lora_B\\.weight$"), by_rows ? rows : columns);
  }
  return layout;
}

LayoutMap transformer(const models::VisionTransformerOptions& /*options*/, const std::string& axis) {
  return {{"\\.(in_proj_|mlp\\.0\\.)weight$", {axis, ""}},
          {"\\.(in_proj_|mlp\\.0\\.)bias$", {axis}},
          {"\\.(out_proj|mlp\\.3)\\.weight$", {"", axis}}};
}

LayoutMap transformer(const models::BertOptions& /*options*/, const std::string& axis, bool cuts_vocabulary) {
  LayoutMap layout{{"\\.(self\\.(query|key|value)|intermediate\\.dense)\\.weight$", {axis, ""}},
                   {"\\.(self\\.(query|key|value)|intermediate\\.dense)\\.bias$", {axis}},
                   {"\\.output\\.dense\\.weight$", {"", axis}}};
  if (!cuts_vocabulary) return layout;
  layout.add("word_embeddings\\.weight$", {axis, ""});
  layout.add("predictions\\.bias$", {axis});
  return layout;
}

LayoutMap recommender(const models::DlrmOptions& options, const std::string& axis,
                      const RecommenderLayoutOptions& cuts) {
  const ParameterAxes first = {axis, ""}, second = {"", axis};
  LayoutMap layout;
  layout.add("emb_l\\.\\d+\\.weight$", cuts.cuts_vocabulary ? first : second);
  if (!cuts.cuts_mlps) return layout;
  const auto add = [&](const std::string& stack, std::size_t layers) {
    for (std::size_t i = 0; i + 1 < layers; i += 2) {  // a relu lies between two layers, and has a number
      const std::string columns = c10::str(stack, "\\.", 2 * i), rows = c10::str(stack, "\\.", 2 * i + 2);
      layout.add(columns + "\\.weight$", first);
      layout.add(columns + "\\.bias$", {axis});
      layout.add(rows + "\\.weight$", second);
    }
  };
  add("bot_l", options.bottom_mlp.size());
  add("top_l", options.top_mlp.size());
  return layout;
}

std::vector<std::string> pipeline_cut(const models::DecoderOptions& options, int chunks) {
  return even_cut("layers.", options.num_layers, chunks);
}

std::vector<std::string> pipeline_cut(const models::VisionTransformerOptions& options, int chunks) {
  return even_cut("encoder_layer_", options.num_layers, chunks);
}

std::vector<std::string> pipeline_cut(const models::BertOptions& options, int chunks) {
  return even_cut("layer.", options.num_layers, chunks);
}

}  // namespace cohort::layouts
