// Whole numbers on the command line.
#pragma once

#include <CLI/CLI.hpp>

namespace cohort {

// Has the app and its commands read the whole numbers of their flags as decimal ones, as those of the configuration
// are: CLI11 takes 010 for 8. Call it when all flags are there.
void read_decimals(CLI::App& app);

}  // namespace cohort
