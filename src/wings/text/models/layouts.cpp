#include "cohort/models/text_models.h"

#include "models/zoo/pipeline_cut.h"

namespace cohort::layouts {

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

LayoutMap transformer(const models::BertOptions& /*options*/, const std::string& axis, bool cuts_vocabulary) {
  LayoutMap layout{{"\\.(self\\.(query|key|value)|intermediate\\.dense)\\.weight$", {axis, ""}},
                   {"\\.(self\\.(query|key|value)|intermediate\\.dense)\\.bias$", {axis}},
                   {"\\.output\\.dense\\.weight$", {"", axis}}};
  if (!cuts_vocabulary) return layout;
  layout.add("word_embeddings\\.weight$", {axis, ""});
  layout.add("predictions\\.bias$", {axis});
  return layout;
}

std::vector<std::string> pipeline_cut(const models::DecoderOptions& options, int chunks) {
  return even_cut("layers.", options.num_layers, chunks);
}

std::vector<std::string> pipeline_cut(const models::BertOptions& options, int chunks) {
  return even_cut("layer.", options.num_layers, chunks);
}

}  // namespace cohort::layouts
