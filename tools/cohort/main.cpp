// The command line: cohort train | launch | report | checkpoint | devices | compile | describe.
#include <torch/version.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "base/cpu_threads.h"
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
  CLI::App& checkpoint =
      *app.add_subcommand("checkpoint", "look into checkpoints, compare them, make files of weights");
  CLI::App& compile = *app.add_subcommand("compile", "compile a program for devices that need not be here");
  CLI::App& devices = *app.add_subcommand("devices", "list what can be computed on");
  CLI::App& launch = *app.add_subcommand("launch", "start the workers of a program");
  CLI::App& report = *app.add_subcommand("report", "show runs of train on a page of HTML");
  CLI::App& train = *app.add_subcommand("train", "train or evaluate an experiment");
  CLI::App& describe = *app.add_subcommand("describe", "print all flags and keys as JSON");
  const auto run_describe = cohort::cli::add_describe(describe, app);
  const auto run_checkpoint = cohort::cli::add_checkpoint(checkpoint);
  const auto run_compile = cohort::cli::add_compile(compile);
  const auto run_devices = cohort::cli::add_devices(devices);
  const auto run_launch = cohort::cli::add_launch(launch, program);
  const auto run_report = cohort::cli::add_report(report);
  const auto run_train = cohort::add_train_flags(train);
  cohort::read_decimals(app);
  try {
    app.parse(static_cast<int>(mark - argv), argv);
    if (mark != end && !launch.parsed()) throw CLI::ExtrasError({"--"});
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    std::cerr << "[cohort] " << error.what() << "\nRun with --help for the flags.\n";
    return cohort::kWrongCall;
  }
  return cohort::exit_status(describe.parsed()     ? run_describe
                             : checkpoint.parsed() ? run_checkpoint
                             : compile.parsed()    ? run_compile
                             : devices.parsed()    ? run_devices
                             : launch.parsed()     ? run_launch
                             : report.parsed()     ? run_report
                                                   : run_train);
}
