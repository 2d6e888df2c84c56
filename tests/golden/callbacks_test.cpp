// Early stopping, the rate on a plateau and the dynamic loss scale, as Keras 3 has them.
#include "cohort/train/more_callbacks.h"

#include <gtest/gtest.h>
#include <torch/nn.h>

#include <set>

#include "cohort/dataset.h"
#include "cohort/train/model.h"
#include "tests/golden/golden.h"

namespace cohort::testing::callbacks_test {
namespace {

using nlohmann::json;

// Reads options by Keras' names; one that nothing takes is a failure.
class Options {
 public:
  explicit Options(const json& options) : options_(options) {}
  template <typename T, typename Field>
  void take(const char* name, Field& field) {
    taken_.insert(name);
    if (options_.contains(name)) field = options_.at(name).get<T>();
  }
  void take_mode(MonitorMode& mode) {
    taken_.insert("mode");
    if (options_.contains("mode")) mode = options_.at("mode") == "max" ? MonitorMode::kMax : MonitorMode::kMin;
  }
  // Returns the options that nothing took, as a sentence.
  std::string left() const {
    std::string names;
    for (const auto& item : options_.items()) {
      if (!taken_.contains(item.key())) names += "the option " + item.key() + " was not read. ";
    }
    return names;
  }

 private:
  json options_;
  std::set<std::string> taken_;
};

// w = 1 after the first epoch, 2 after the second: one step an epoch, whose gradient is -1.
Sequential counting_model(double rate) {
  Sequential model({Dense({.units = 1, .use_bias = false})}, {.dtype = torch::kDouble});
  model.build({1});
  model.set_weights({{"dense.weight", torch::zeros({1, 1}, torch::kDouble)}});
  model.compile({.optimizer = SGD({.learning_rate = rate}),
                 .loss = Loss("count", [](const torch::Tensor&, const torch::Tensor& p) { return -p; })});
  return model;
}

// Trains an epoch for each number of the sequence, which is the monitored log of that epoch. Adds the rate after each.
History train(Sequential& model, const json& sequence, const CallbackPtr& callback,
              std::vector<double>* rates = nullptr) {
  const CallbackPtr tell = LambdaCallback({.on_epoch_end = [&](const RunInfo& run, Logs& logs) {
    logs.set("val_loss", golden_number(sequence.at(static_cast<std::size_t>(run.epoch))));
  }});
  const CallbackPtr note = LambdaCallback({.on_epoch_end = [&](const RunInfo& run, Logs&) {
    if (rates != nullptr) rates->push_back(run.model.optimizer().learning_rate());
  }});
  const torch::Tensor one = torch::ones({1, 1}, torch::kDouble);
  return model.fit(Dataset::from_tensor_slices(one, one).batch(1), {.epochs = static_cast<int64_t>(sequence.size()),
                                                                    .callbacks = {tell, callback, note},
                                                                    .verbose = Verbose::kSilent});
}

std::string check_early_stopping(const json& golden) {
  EarlyStoppingOptions options;
  Options given(golden.at("options"));
  given.take<int64_t>("patience", options.patience);
  given.take<double>("min_delta", options.min_delta);
  given.take<double>("baseline", options.baseline);
  given.take<bool>("restore_best_weights", options.restore_best_weights);
  given.take<int64_t>("start_from_epoch", options.start_from_epoch);
  given.take_mode(options.mode);
  Sequential model = counting_model(1.0);
  const History history = train(model, golden.at("sequence"), EarlyStopping(options));
  const auto epochs = static_cast<int64_t>(history.epochs().size());
  const int64_t stopped = model.stopping() ? epochs - 1 : 0;
  return given.left() + difference("the number of epochs", static_cast<double>(epochs), golden.at("epochs"), {}) +
         difference("the weight", model.weights()[0].second.item<double>(), golden.at("weight"), {}) +
         difference("the epoch in which it stopped", static_cast<double>(stopped), golden.at("stopped_epoch"), {});
}

std::string check_plateau(const json& golden) {
  ReduceLROnPlateauOptions options;
  Options given(golden.at("options"));
  given.take<int64_t>("patience", options.patience);
  given.take<double>("factor", options.factor);
  given.take<double>("min_delta", options.min_delta);
  given.take<int64_t>("cooldown", options.cooldown);
  given.take<double>("min_lr", options.min_lr);
  given.take_mode(options.mode);
  Sequential model = counting_model(1.0);
  std::vector<double> rates;
  train(model, golden.at("sequence"), ReduceLROnPlateau(options), &rates);
  return given.left() + difference("the rates", torch::tensor(rates, torch::kDouble), golden_tensor(golden.at("rates")),
                                   {.relative = 1e-9});
}

// Two parameters whose gradients are what multiplies them in the loss.
struct PairImpl : torch::nn::Module {
  PairImpl() { w = register_parameter("w", torch::tensor({1.0, -2.0}, torch::kDouble)); }
  torch::Tensor w;
};
TORCH_MODULE(Pair);

std::string check_loss_scale(const json& golden) {
  LossScale scale;
  Options given(golden.at("options"));
  given.take<double>("initial_scale", scale.initial_scale);
  given.take<int64_t>("dynamic_growth_steps", scale.growth_steps);
  std::string differences = given.left();
  for (const int replicas : {1, 2}) {
    const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
    const auto net = strategy.mirror([] { return Pair(); });
    const MirroredOptimizer optimizer = strategy.optimizer(net, LossScaleOptimizer(SGD({.learning_rate = 0.1}), scale));
    for (std::size_t step = 0; step < golden.at("gradients").size(); ++step) {
      const torch::Tensor gradient = golden_tensor(golden.at("gradients")[step]);
      strategy.run([&](Replica& replica) {
        optimizer[replica].minimize((net[replica]->w * gradient).sum() / replica.num_replicas_in_sync());
      });
      const json& wanted = golden.at("steps").at(step);
      const std::string when = c10::str("after step ", step, " on ", replicas, " replicas ");
      differences +=
          difference(when + "w", net[0]->w.detach(), golden_tensor(wanted.at("w")), {.absolute = 1e-6}) +
          difference(when + "the scale", optimizer.loss_scale(), wanted.at("scale"), {}) +
          difference(when + "the updates", static_cast<double>(optimizer.iterations()), wanted.at("iterations"), {});
    }
  }
  return differences;
}

TEST(GoldenCallbacks, EarlyStopping) {
  check_golden("early_stopping.json", check_early_stopping);
}

TEST(GoldenCallbacks, ReduceLROnPlateau) {
  check_golden("plateau.json", check_plateau);
}

TEST(GoldenCallbacks, LossScale) {
  check_golden("loss_scale.json", check_loss_scale);
}

}  // namespace
}  // namespace cohort::testing::callbacks_test
