#include "cohort/models/layouts.h"

namespace cohort::layouts {

LayoutMap transformer(const models::DecoderOptions& options, const std::string& axis) {
  const ParameterAxes columns = {axis, ""}, rows = {"", axis};
  LayoutMap layout{{"\\.(q|k|v|gate|up)_proj\\.weight$", columns}, {"\\.(o|down)_proj\\.weight$", rows}};
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

}  // namespace cohort::layouts
