#include "models/zoo/pipeline_cut.h"

#include "base/extension.h"
#include "base/fail.h"
#include "cohort/models/pipeline_cut.h"

namespace cohort::layouts {

std::vector<std::string> even_cut(const std::string& prefix, int64_t blocks, int chunks) {
  if (chunks < 1 || chunks > blocks) {
    fail<InvalidArgument>("[layouts] a model of ", blocks, " blocks has no ", chunks, " chunks, 1 to ", blocks,
                          " would fit");
  }
  std::vector<std::string> places;
  for (int chunk = 1; chunk < chunks; ++chunk) places.push_back(prefix + std::to_string(chunk * blocks / chunks));
  return places;
}

std::vector<std::string> pipeline_cut(LayerModule& model, const torch::Tensor& x, int chunks) {
  return extension_of<CutByCosts>("pipeline", "[layouts] a model is to be cut for a pipeline").cut(model, x, chunks);
}

}  // namespace cohort::layouts
