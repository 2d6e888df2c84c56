// The weights of layers in Keras' files: their order, their groups, and the layouts that differ from ours.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "cohort/example.h"
#include "cohort/train/layers/layer.h"
#include "wings/keras/train/place.h"

namespace cohort {

// Keras' layout of a weight. Each line has ours first.
enum class WeightLayout {
  kSame,
  kMatrix,     // [outputs, inputs]; [inputs, outputs]
  kKernel,     // [a, b, places...]; [places..., b, a], for filters and channels in either order
  kDepthwise,  // [channels * parts, 1, height, width]; [height, width, channels, parts]
  kToHeads,    // [parts * size, inputs]; [inputs, parts, size]
  kHeads,      // [parts * size]; [parts, size]
  kFromHeads,  // [outputs, parts * size]; [parts, size, outputs]
  kGruMatrix,  // gates reset, update, new; update, reset, new; transposed
  kGruBiases,  // one or two of [gates * units]; the same, or [2, gates * units], with Keras' order of the gates
};

struct FileWeight {
  const char* group;  // within the layer's group in the file
  const char* name;   // ours within the layer
  WeightLayout layout = WeightLayout::kSame;
  const char* second = nullptr;  // the other one of kGruBiases
};

// Returns a weight as files have it.
torch::Tensor to_file(WeightLayout layout, int64_t parts, const torch::Tensor& ours, const torch::Tensor& second = {});
// One weight of a model in its file.
struct BoundWeight {
  std::string path;   // "layers/dense/vars/0"
  std::string first;  // ours, by its name in the model
  std::string second;
  WeightLayout layout = WeightLayout::kSame;
  int64_t parts = 1;
};

// Returns the weight, or both of kGruBiases, of what a file has, with the shape of `ours`. DataLoss: the file has
// another shape.
std::vector<torch::Tensor> from_file(const BoundWeight& weight, const torch::Tensor& file, const torch::Tensor& ours,
                                     const FilePlace& place);

}  // namespace cohort
