// The commands of this wing.
#pragma once

#include "commands.h"

namespace cohort::cli {

// Adds `checkpoint`, which looks into checkpoints.
Command add_checkpoint(CLI::App& app);
// Adds `report`, which makes a page that shows runs.
Command add_report(CLI::App& app);

}  // namespace cohort::cli
