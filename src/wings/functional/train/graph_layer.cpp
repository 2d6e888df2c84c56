#include "cohort/train/layers/graph_layer.h"

#include "train/layers/support.h"

namespace cohort {

Shape GraphLayerKind::output_shape(const BuildContext& context) const {
  std::vector<Shape> outputs = output_shapes(context, {context.input});
  if (outputs.size() == 1) return std::move(outputs.front());
  fail<InvalidArgument>("[layers] ", context.name, " (", type(), "): it has ", outputs.size(),
                        " outputs, but a Sequential passes on one; use a Functional");
}

}  // namespace cohort
