// The command line: cohort train | devices | describe, and the commands of wings.
#include <torch/version.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "base/cpu_threads.h"
#include "base/extension.h"
#include "cohort/version.h"
#include "commands.h"
#include "ignored_signals.h"
#include "models/command/decimals.h"
#include "models/command/train_command.h"

namespace {

// OpenBLAS takes an AVX-512 CPU that it does not know for an older one. The variable that corrects this is read when
// the library is loaded, so the program starts itself again, once.
void restart_with_right_blas(char** argv) {
  const std::string better = cohort::better_blas_core();
  if (better.empty() || std::getenv("OPENBLAS_CORETYPE") != nullptr) return;
  ::setenv("OPENBLAS_CORETYPE", better.c_str(), 1);
  ::execv("/proc/self/exe", argv);  // if this fails the program goes on, more slowly
}

std::vector<cohort::cli::CommandRow> command_rows(const CLI::App& app) {
  using namespace cohort::cli;
  install_commands();
  std::vector<CommandRow> rows = cohort::extensions<CommandRow>();
  rows.push_back({"devices", "list what can be computed on", add_devices});
  rows.push_back({"train", "train or evaluate an experiment", cohort::add_train_flags});
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  rows.push_back({"describe", "print all flags and keys as JSON",
                  [&app](CLI::App& command) { return add_describe(command, app); }});
  return rows;
}

}  // namespace

int main(int argc, char** argv) {
  cohort::cli::ignore_signals_again();
  restart_with_right_blas(argv);
  // The arguments behind -- belong to another program.
  char** const end = argv + argc;
  char** const mark = std::find(argv, end, std::string_view("--"));
  const std::vector<std::string> program(std::min(mark + 1, end), end);
  CLI::App app("Cohort: training on one device, many devices, many machines", "cohort");
  app.require_subcommand(1);
  app.set_version_flag("--version", "cohort " COHORT_VERSION ", LibTorch " TORCH_VERSION);
  std::vector<std::pair<const CLI::App*, cohort::cli::Command>> commands;
  std::vector<const CLI::App*> with_program;
  for (const cohort::cli::CommandRow& row : command_rows(app)) {
    CLI::App* const command = app.add_subcommand(row.name, row.description);
    if (row.add_with_program) with_program.push_back(command);
    commands.emplace_back(command, row.add_with_program ? row.add_with_program(*command, program) : row.add(*command));
  }
  cohort::read_decimals(app);
  try {
    app.parse(static_cast<int>(mark - argv), argv);
    const bool runs_program =
        std::any_of(with_program.begin(), with_program.end(), [](const auto* each) { return each->parsed(); });
    if (mark != end && !runs_program) throw CLI::ExtrasError({"--"});
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    std::cerr << "[cohort] " << error.what() << "\nRun with --help for the flags.\n";
    return cohort::kWrongCall;
  }
  const auto chosen =
      std::find_if(commands.begin(), commands.end(), [](const auto& each) { return each.first->parsed(); });
  return cohort::exit_status(chosen->second);
}
