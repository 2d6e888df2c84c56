// SharedLayer: the modules that a layer has become in a functional model. Other models that the layer is in, and calls
// of the layer by itself, take the same ones.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "cohort/train/functional.h"
#include "wings/functional/train/functional_module.h"

namespace cohort {

struct SharedLayer {
  Strategy strategy;
  std::vector<std::shared_ptr<torch::nn::Module>> copies;  // one a replica
  std::optional<Model> alone = std::nullopt;               // which has the layer and nothing else
};

// Returns the modules of a layer; null: it is in no model yet.
SharedLayer* shared_layer(const Layer& layer);

// The layers of a plan as modules, for one replica after the other.
class LayersOfPlan {
 public:
  // FailedPrecondition: layers or models of the plan cannot be shared with others under the strategy.
  LayersOfPlan(const FunctionalPlan& plan, const Strategy& strategy, torch::ScalarType dtype);

  // Returns the children of the next replica's module.
  std::vector<FunctionalModule::Child> next();
  // Lets later models have what was made.
  void share() const;

 private:
  void require_sharable(const FunctionalPlan::Planned& planned, const Strategy& owner) const;
  FunctionalModule::Child child(std::size_t layer, std::size_t replica) const;
  BuildContext context_of(const FunctionalPlan::Planned& planned) const;

  const FunctionalPlan& plan_;
  Strategy strategy_;
  torch::ScalarType dtype_;
  std::vector<std::vector<std::shared_ptr<torch::nn::Module>>> made_;  // one list a layer, one module a replica
  std::size_t replica_ = 0;
};

// Makes a model of a plan under the current strategy; see Functional.
std::shared_ptr<ModelState> make_functional(const FunctionalPlan& plan, const FunctionalOptions& options);

}  // namespace cohort
