// RunObserver: what a wing does beside a run of `cohort train`, for flags of its own.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "cohort/models/experiment.h"

namespace cohort {

struct RunObserver {
  std::function<void(RunOptions&)> begin;    // called before the workers meet
  std::function<void(const Strategy&)> met;  // called when they have met
};

// An extension.
struct RunObserverMaker {
  // Adds the flags of the wing. The functions are called after they were read.
  RunObserver (*make)(CLI::App& app);
};

}  // namespace cohort
