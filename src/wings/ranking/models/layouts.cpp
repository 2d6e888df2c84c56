#include "cohort/models/dlrm.h"

#include <c10/util/StringUtil.h>

namespace cohort::layouts {

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

}  // namespace cohort::layouts
