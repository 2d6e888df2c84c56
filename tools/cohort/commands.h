// The subcommands of the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace cohort::cli {

// Adds the subcommand's flags to `app`; what it returns runs it and gives the exit status.
using Command = std::function<int()>;
Command add_devices(CLI::App& app);
Command add_train(CLI::App& app);

}  // namespace cohort::cli
