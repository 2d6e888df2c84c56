// FunctionalPlan: the graph between the inputs and the outputs of a model: its layers in Keras' order, and its calls in
// an order in which they can be made.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "wings/functional/train/symbolic.h"

namespace cohort {

struct FunctionalPlan {
  // A layer of the model, its inputs among them.
  struct Planned {
    Layer layer;                                 // with its name in the model
    const detail::SymbolicNode* node = nullptr;  // its first call; null: it stands for an input
    std::optional<bool> training = std::nullopt;
    std::vector<std::size_t> calls = {};
    Shape output = {};
    std::string inputs = {};  // "dense[0][0], flat[0][0]", as Keras' summary() says
  };
  // A call of a layer: it makes the values `first`, `first` + 1, ...
  struct Call {
    std::size_t layer = 0;
    std::shared_ptr<const detail::SymbolicNode> node;
    std::vector<std::size_t> inputs = {};
    std::size_t first = 0;
    std::size_t depth = 0;                   // the length of the longest way to an output
    std::vector<std::size_t> unmasked = {};  // tensors that come without the masks that they have
  };

  std::string name;
  std::vector<SymbolicTensor> inputs;
  std::vector<std::pair<std::string, SymbolicTensor>> outputs;  // named
  bool gave_names = false;                                      // some outputs were given names
  std::vector<Planned> layers;
  std::vector<Call> calls;
  std::size_t values = 0;                  // the first ones are the inputs
  std::vector<std::size_t> output_values;  // one an output
  std::vector<std::size_t> input_layers;   // one an input
  bool any_sizes = false;                  // inputs may have other sizes than they were declared with

  // Returns the names of the inputs.
  std::vector<std::string> input_names() const;
  // Returns how often a value is used, outputs included.
  std::vector<std::size_t> uses() const;
};

// Makes the plan. InvalidArgument as Functional's.
FunctionalPlan make_plan(const std::string& name, const std::vector<SymbolicTensor>& inputs,
                         const SymbolicOutputs& outputs);

}  // namespace cohort
