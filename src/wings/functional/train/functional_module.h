// FunctionalModule: a replica's copy of a functional model.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "train/layers/layer_chain.h"
#include "train/layers/layered_module.h"
#include "wings/functional/train/plan.h"

namespace cohort {

class FunctionalModule final : public torch::nn::Module, public LayeredModule {
 public:
  // The way in which a layer's module is called.
  using Callee = std::function<LayerValues(const LayerValues&)>;
  struct Child {
    std::shared_ptr<torch::nn::Module> module;
    Callee call;
  };

  // `children`: one for each layer of the plan.
  FunctionalModule(std::shared_ptr<const FunctionalPlan> plan, std::vector<Child> children);

  const FunctionalPlan& plan() const { return *plan_; }
  // Computes the outputs, with their masks, from the inputs in the order of the plan.
  LayerValues forward_values(const LayerValues& inputs) const;
  // The same for a model: keeps the masks for take_output_masks(). InvalidArgument: the inputs do not fit.
  std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& inputs) const;
  // Sets the mode, but that of layers whose calls keep to one.
  void train(bool on = true) override;

  std::vector<torch::Tensor> penalties() const override;
  std::vector<torch::Tensor> take_output_masks() override;
  std::vector<PlacedLayer> places() const override;
  void visit(const std::vector<torch::Tensor>& inputs, const LayerVisitor& visitor) override;
  void begin_chunks(const std::vector<std::size_t>& places) override;
  std::vector<std::vector<std::shared_ptr<LayerModule>>> chains() const override;
  void leave_parts() override;

 private:
  // Calls that are made together: a chain of layers, or one call.
  struct Unit {
    std::size_t first_call;
    std::size_t last_call;                   // the last one, which makes the values
    std::optional<LayerChain> chain;         // unset: the callee of the layer
    std::vector<std::size_t> done;           // values that nobody needs behind it
    std::string begins_chunk;                // the place's name; empty: it begins none
    std::vector<std::size_t> crossing = {};  // values that go over to the chunk
  };

  // Groups the calls; none goes over the beginning of a chunk.
  void make_units(const std::set<std::size_t>& chunks);
  // Returns whether a call continues the chain that ends with the call before.
  bool continues(std::size_t call, const std::vector<std::size_t>& uses) const;
  bool is_plain(std::size_t call) const;
  Unit make_unit(std::size_t first, std::size_t last) const;
  std::string place_name(std::size_t call) const;
  void note_last_uses();
  static void enter_chunk(const Unit& unit, std::vector<torch::Tensor>& values);
  void check(const std::vector<torch::Tensor>& inputs) const;

  std::shared_ptr<const FunctionalPlan> plan_;
  std::vector<Child> children_;
  std::vector<Unit> units_;
};

}  // namespace cohort
