// A configuration for tests.
#pragma once

#include "cohort/models/config.h"

namespace cohort::testing {

struct InputConfig {
  Setting<std::string> path;
  Setting<int64_t> batch = 32;
  Setting<bool> cache = false;
  Setting<std::vector<int64_t>> size = {32, 32};

  void describe(ConfigFields& fields) {
    fields.add("path", path, "folder");
    fields.add("batch", batch, "examples a step");
    fields.add("cache", cache, "whether it is kept in memory");
    fields.add("size", size, "height and width");
    fields.restrict("batch > 0");
  }
};

struct RunConfig {
  InputConfig train;
  InputConfig test;
  Setting<int64_t> steps = 1000;
  Setting<double> rate = 0.1;
  Setting<std::string> strategy = "mirrored";
  Setting<std::vector<std::string>> names;
  Setting<std::vector<double>> weights;

  void describe(ConfigFields& fields) {
    fields.nest("train", train);
    fields.nest("test", test);
    fields.add("steps", steps, "to take");
    fields.add("rate", rate, "of learning");
    fields.add("strategy", strategy, "of distribution", {"mirrored", "off"});
    fields.add("names", names, "of anything");
    fields.add("weights", weights, "of the classes");
    fields.restrict("train.batch >= test.batch");
  }
};

struct Described {
  RunConfig run;
  Config config{[this](ConfigFields& fields) { run.describe(fields); }};
};

}  // namespace cohort::testing
