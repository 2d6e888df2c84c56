// The texts that say how values are divided among the cores of a replica.
#pragma once

#include <string>

#include "wings/xla/record/stablehlo/text.h"

namespace cohort::record::stablehlo {

// Writes the line that declares a replica's cores.
std::string mesh_text(int cores);
// Writes the sharding of a tensor that is cut in so many tiles in each dimension, such as
// <@cores, [{}, {}, {"core":(1)2}, {"core":(2)2}]>. Their product is the number of cores, or 1: every core has all.
std::string sharding_text(const Dims& tiles);
// Writes the attribute of an argument or a result that every core has all of.
std::string whole_text(int64_t rank);

}  // namespace cohort::record::stablehlo
