// cohort run.
#pragma once

#include "commands.h"

namespace cohort::cli {

Command add_run(CLI::App& app);

}  // namespace cohort::cli
