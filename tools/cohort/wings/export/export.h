// The command of this wing.
#pragma once

#include "commands.h"

namespace cohort::cli {

Command add_export(CLI::App& app);

}  // namespace cohort::cli
