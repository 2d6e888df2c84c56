// Dividing a tensor among the cores of a replica: an annotation in the graph, which XLA's partitioner follows. The
// value is not changed by it.
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "base/fail.h"
#include "wings/xla/record/cell.h"
#include "wings/xla/record/recorder.h"

namespace cohort::record {

namespace {

torch::Tensor annotated(const torch::Tensor& tensor, const std::vector<int64_t>& tiles) {
  const Value value = value_of(tensor);
  return make_tensor(make_node(kShardOp, {value, c10::IValue(tiles)}, value.type()), tensor.device());
}

class MarkSharding : public torch::autograd::Function<MarkSharding> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& tensor,
                               const std::vector<int64_t>& tiles) {
    context->saved_data["tiles"] = tiles;
    return annotated(tensor, tiles);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    return {shard(gradients[0], context->saved_data["tiles"].toIntVector()), torch::Tensor()};
  }
};

}  // namespace

torch::Tensor shard(const torch::Tensor& tensor, const std::vector<int64_t>& tiles) {
  const bool positive = std::all_of(tiles.begin(), tiles.end(), [](int64_t n) { return n > 0; });
  if (!is_recorded(tensor) || !positive || static_cast<int64_t>(tiles.size()) != tensor.dim()) {
    fail<InvalidArgument>("[record] a tensor of ", tensor.sizes(), " on ", tensor.device(), " was to be cut in [",
                          c10::Join(", ", tiles), "] tiles, wanted a recorded one and a number of 1 or more for each ",
                          "of its dimensions");
  }
  return MarkSharding::apply(tensor, tiles);
}

}  // namespace cohort::record
