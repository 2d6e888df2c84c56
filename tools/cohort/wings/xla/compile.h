// cohort compile.
#pragma once

#include "commands.h"

namespace cohort::cli {

Command add_compile(CLI::App& app);

}  // namespace cohort::cli
