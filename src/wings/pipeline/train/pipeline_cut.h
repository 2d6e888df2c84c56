// The layers of a model at which a pipeline cuts it.
#pragma once

#include <string>
#include <vector>

#include "train/model/model_cutter.h"

namespace cohort {

// Returns the first items of all parts but the first, when a row of items with these costs is cut into so many parts,
// none of them empty, whose largest cost is the smallest that there is; of several such cuts, the one whose first parts
// are the shortest. There are at least as many items as parts.
std::vector<std::size_t> cut_by_cost(const std::vector<double>& costs, std::size_t parts);

// Cuts the copies of a model that is made of layers as the strategy says: at its Stage() layers, by names, or by the
// time that its layers take for a few examples of inputs of these shapes and dtypes. `speaker` opens messages.
// InvalidArgument names the layers and the chunks that are wanted.
void cut_for_pipeline(const std::string& speaker, const StrategyCore& core, const std::vector<LayeredCopy>& copies,
                      const std::vector<BuildContext>& inputs);

}  // namespace cohort
