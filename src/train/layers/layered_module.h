// LayeredModule: a module that a model has made of layers, as the model, and who cuts or divides it, see it.
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/train/layers/layer.h"
#include "train/layers/leaves_parts.h"

namespace cohort {

// A layer where it is called.
struct PlacedLayer {
  std::string name;
  std::shared_ptr<torch::nn::Module> layer;
};

// Returns the outputs of a layer for these inputs. The layer may be called more than once.
using LayerVisitor = std::function<std::vector<torch::Tensor>(
    std::size_t place, const std::vector<torch::Tensor>& inputs,
    const std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)>& call)>;

// Base of modules that call layers one after the other.
class LayerChains {
 public:
  virtual ~LayerChains() = default;
  // Returns layers that are called one after the other and nowhere else, the longest lists that there are.
  virtual std::vector<std::vector<std::shared_ptr<LayerModule>>> chains() const = 0;
};

class LayeredModule : public LeavesParts, public LayerChains {
 public:
  // Returns what the regularizers of each layer that has any add to the loss, scalars.
  virtual std::vector<torch::Tensor> penalties() const = 0;
  // Returns the masks of the calling thread's last outputs, undefined for none, and forgets them. Empty: there is none.
  virtual std::vector<torch::Tensor> take_output_masks() = 0;

  // Returns the calls of layers in their order.
  virtual std::vector<PlacedLayer> places() const = 0;
  // Has each call made by the visitor, without masks.
  virtual void visit(const std::vector<torch::Tensor>& inputs, const LayerVisitor& visitor) = 0;
  // Has chunks of a pipeline begin at these places, which ascend and do not have the first one. Called once.
  virtual void begin_chunks(const std::vector<std::size_t>& places) = 0;
};

}  // namespace cohort
