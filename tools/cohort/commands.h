// The subcommands of the command line, cohort.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace cohort::cli {

// Runs a subcommand and returns the exit status. The functions below add a subcommand's flags to `app` and return it.
using Command = std::function<int()>;
Command add_devices(CLI::App& app);
// Adds `describe`, which prints the flags of the other subcommands of `whole`.
Command add_describe(CLI::App& app, const CLI::App& whole);

// A subcommand. Those of wings are extensions (src/base/extension.h).
struct CommandRow {
  std::string name;
  std::string description;
  std::function<Command(CLI::App& app)> add;
  // Does the same for a command that runs a program: the arguments behind --. Replaces `add`.
  std::function<Command(CLI::App& app, std::vector<std::string> program)> add_with_program = {};
};

// Adds flags to `devices`, and returns what prints more devices. An extension.
struct DevicesPart {
  std::function<void()> (*add)(CLI::App& app);
};

// Calls the functions of wings that add such extensions; to be called once. The build writes its definition.
void install_commands();

}  // namespace cohort::cli
