// The parts of `cohort train` and train_main().
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "cohort/models/experiment.h"

namespace cohort {

// The exit status after a wrong call; a run that fails has another one.
constexpr int kWrongCall = 2;

// What a wing does beside a run, for flags of its own. An extension makes it.
struct RunObserver {
  std::function<void(RunOptions&)> begin;    // called before the workers meet
  std::function<void(const Strategy&)> met;  // called when they have met
};
struct RunObserverMaker {
  RunObserver (*make)(CLI::App& app);  // adds the flags of the wing, which the functions read
};

// Adds the flags of a training to `app`. Returns a function that trains and returns the exit status.
std::function<int()> add_train_flags(CLI::App& app);

// Runs a command and returns its exit status, or that of the error that it throws, which is told on standard error.
int exit_status(const std::function<int()>& command);

}  // namespace cohort
