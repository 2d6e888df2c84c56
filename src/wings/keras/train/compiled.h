// The options that a model was compiled with, and the state of its optimizer.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cohort/train/model.h"
#include "wings/keras/train/place.h"
#include "wings/keras/train/weight_layout.h"

namespace cohort {

// Keras' names of the reductions in the order of LossReduction, and another one of the first.
inline constexpr std::array kLossReductions = {"sum_over_batch_size", "sum", "mean_with_sample_weight", "none", "mean"};

// Returns the options of compile() in "compile_config", for a model with these outputs, of which an only one may have
// no name; nothing if the model was not compiled.
std::optional<CompileOptions> compile_options(const Json& config, const std::vector<std::string>& outputs,
                                              const FilePlace& place);

// The order of an optimizer's variables in a file, beside iterations and the rate.
struct SlotOrder {
  bool is_negative = false;                           // Keras has the momentum with the other sign
  std::vector<std::vector<const char*>> groups = {};  // each for all weights, before the next one; ours by name
};
SlotOrder slot_order(const Optimizer& optimizer);

// Returns the group of a file in which an optimizer's variables are; those of the one in a LossScaleOptimizer.
std::string variables_of(const Optimizer& optimizer);

// Returns the weights that an optimizer updates.
std::vector<BoundWeight> learning_weights(const MirroredOptimizer& optimizer, const std::vector<BoundWeight>& weights);

// Loads the state of a compiled model's optimizer, whose weights are bound. DataLoss: the number or the shape of the
// variables does not fit the model.
void load_optimizer(const Model& model, const std::map<std::string, torch::Tensor>& file,
                    const std::vector<BoundWeight>& weights, const FilePlace& place);

}  // namespace cohort
