// A program of one's own whose settings and strategy come from its command line.
// Usage: example_configured [runtime.distribution_strategy=mirrored,runtime.num_replicas=2,epochs=3] ...
#include <iostream>

#include "cohort/cohort.h"

using namespace cohort;

namespace {

struct Settings {
  StrategyFlags runtime;
  Setting<int64_t> epochs = 1;
  Setting<double> learning_rate = 1e-3;

  void describe(ConfigFields& fields) {
    fields.nest("runtime", runtime);
    fields.add("epochs", epochs, "passes over the data");
    fields.add("learning_rate", learning_rate, "of every step");
    fields.restrict("epochs > 0");
  }
};

int train(const Settings& settings, const Config& config) {
  const Strategy strategy = make_strategy(settings.runtime);
  const auto scope = strategy.scope();
  Sequential model({Flatten(), Dense(64, Activation::kRelu), Dense(10)});
  model.compile({.optimizer = Adam({.learning_rate = *settings.learning_rate}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy({.name = "accuracy"})}});
  const FitOptions options{.epochs = settings.epochs, .verbose = Verbose::kSilent};
  config.require_read("this program");  // what is in use has been read by now
  const datasets::TrainTest digits = datasets::drawn_digits();
  model.fit(digits.train.shuffle(10'000).batch(64), options);
  Logs logs = model.evaluate(digits.test.batch(500));
  std::cout << strategy.name() << ", " << strategy.num_replicas_in_sync() << " replica(s): " << logs["accuracy"]
            << "\n";
  return logs["accuracy"] > 0.6 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Settings settings;
    Config config([&](ConfigFields& fields) { settings.describe(fields); });
    for (int i = 1; i < argc; ++i) config.apply_override(argv[i]);
    config.lock();
    return train(settings, config);
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
