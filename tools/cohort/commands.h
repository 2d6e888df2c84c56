// The subcommands of the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace cohort::cli {

// Adds the subcommand's flags to `app`; what it returns runs it and gives the exit status.
using Command = std::function<int()>;
Command add_devices(CLI::App& app);
// `program`: what stood behind --.
Command add_launch(CLI::App& app, std::vector<std::string> program);
// One page that shows runs.
Command add_report(CLI::App& app);

}  // namespace cohort::cli
