#include "cohort/models/image_models.h"

#include "models/zoo/pipeline_cut.h"

namespace cohort::layouts {

LayoutMap transformer(const models::VisionTransformerOptions& /*options*/, const std::string& axis) {
  return {{"\\.(in_proj_|mlp\\.0\\.)weight$", {axis, ""}},
          {"\\.(in_proj_|mlp\\.0\\.)bias$", {axis}},
          {"\\.(out_proj|mlp\\.3)\\.weight$", {"", axis}}};
}

std::vector<std::string> pipeline_cut(const models::VisionTransformerOptions& options, int chunks) {
  return even_cut("encoder_layer_", options.num_layers, chunks);
}

}  // namespace cohort::layouts
