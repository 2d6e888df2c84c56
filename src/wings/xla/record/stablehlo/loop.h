// The text of a loop (wings/xla/record/loop.h).
#pragma once

#include <string>

#include "wings/xla/record/program.h"

namespace cohort::record::stablehlo {

// Returns the functions "main" and "iteration" of a program that is a loop. The body is the function "step" of the same
// module. What the runs have for themselves is stacked before the first one and sliced in each; barriers around the
// step keep XLA from computing it otherwise than by itself, so that its results have the same bits. "divided": among
// the cores of a replica, each of which has all of what enters and leaves the program.
std::string loop_text(const Program& program, bool divided);

}  // namespace cohort::record::stablehlo
