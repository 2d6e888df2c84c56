// What fit() costs a step beside a bare run() of the same work: its input, the loss object and its metric, events, the
// progress. Both take turns, so that other programs slow both.
#include <iostream>
#include <nlohmann/json.hpp>

#include "bench.h"
#include "cohort/train.h"
#include "step.h"

namespace cohort::bench {

namespace {

constexpr int64_t kSteps = 200;  // of an epoch

// The layers of make_model("mlp").
Sequential make_mlp(const Strategy& strategy, int64_t together) {
  const auto scope = strategy.scope();
  Sequential model({Dense(256, Activation::kRelu), Dense(128, Activation::kRelu), Dense(kClasses)});
  model.compile({.optimizer = Adam({.learning_rate = 1e-3}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .steps_per_execution = together});
  return model;
}

}  // namespace

void run_fit(int replicas, int64_t together, double seconds) {
  torch::manual_seed(1);
  const Strategy strategy = make_strategy({.replicas = replicas}, "mlp");
  const int64_t size = batch_per_replica("mlp") * replicas;
  Step bare(strategy, "mlp");
  Sequential model = make_mlp(strategy, together);
  const Dataset data = Dataset::from_tensor_slices(
                           Example{.x = make_input("mlp", size), .y = torch::randint(kClasses, {size}, torch::kLong)})
                           .batch(size)
                           .cache()
                           .repeat();
  // Both are timed in runs of as many steps as the callbacks see together.
  std::vector<double> fits;
  std::vector<double> runs;
  double last = 0.0;
  const auto note = [&last, together](std::vector<double>& times) {
    const double time = now();
    if (last > 0.0) times.push_back((time - last) / static_cast<double>(together));
    last = time;
  };
  const CallbackPtr watch = LambdaCallback({.on_epoch_begin = [&](const RunInfo&) { last = 0.0; },
                                            .on_batch_end = [&](const RunInfo&, const BatchLogs&) { note(fits); }});
  const auto turn = [&] {
    model.fit(data, {.steps_per_epoch = kSteps, .callbacks = {watch}, .verbose = Verbose::kSilent});
    last = 0.0;
    for (int64_t i = 0; i < kSteps; ++i) {
      bare();
      if ((i + 1) % together == 0) note(runs);
    }
  };
  turn();
  fits.clear();
  runs.clear();
  for (const double end = now() + 2 * seconds; now() < end || fits.size() < 5;) turn();
  std::cout << nlohmann::json{{"fit", replicas},
                              {"steps_per_execution", together},
                              {"least_fit_us", *std::min_element(fits.begin(), fits.end()) * 1e6},
                              {"least_run_us", *std::min_element(runs.begin(), runs.end()) * 1e6},
                              {"fit_us", median(std::move(fits)) * 1e6},
                              {"run_us", median(std::move(runs)) * 1e6}}
            << std::endl;
}

}  // namespace cohort::bench
