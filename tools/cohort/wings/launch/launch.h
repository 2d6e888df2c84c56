// cohort launch.
#pragma once

#include <string>
#include <vector>

#include "commands.h"

namespace cohort::cli {

// Adds the flags of `launch`. `program` is the command behind --.
Command add_launch(CLI::App& app, std::vector<std::string> program);

}  // namespace cohort::cli
