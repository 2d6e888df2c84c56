// TensorFlow's tutorial "Parameter server training with ParameterServerStrategy", its custom training loop cell by
// cell: strings that are looked up, an embedding in parts on the servers, steps that the coordinator schedules,
// evaluation on the coordinator and on the workers.
//
//   cohort launch --ps=2 --workers=3 -- example_parameter_server_training
//
// Ends with the accuracy of both evaluations, above 0.9. The notebook's fit() is examples/parameter_server_fit.cpp.
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "cohort/cohort.h"

namespace {

using namespace cohort;

const std::vector<std::string> kFeatureVocab = {"avenger",   "ironman",  "batman",      "hulk",
                                                "spiderman", "kingkong", "wonder_woman"};

// Makes examples of three words; the label is "yes" if "avenger" is among them.
Dataset feature_and_label_gen(int64_t num_examples, uint64_t seed) {
  const StringLookup feature_lookup({.vocabulary = kFeatureVocab});
  const StringLookup label_lookup({.num_oov_indices = 0, .vocabulary = {"yes", "no"}});
  std::mt19937_64 random(seed);
  std::vector<std::vector<std::string>> features;
  std::vector<std::string> labels;
  for (int64_t i = 0; i < num_examples; ++i) {
    std::vector<std::string> words = kFeatureVocab;
    std::shuffle(words.begin(), words.end(), random);
    words.resize(3);
    labels.emplace_back(std::find(words.begin(), words.end(), "avenger") != words.end() ? "yes" : "no");
    features.push_back(std::move(words));
  }
  return Dataset::from_tensor_slices(feature_lookup.batch(features),
                                     label_lookup(labels).to(torch::kFloat).view({num_examples, 1}));
}

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return torch::sigmoid(dense(embedding(x).mean(1))); }
  torch::nn::Embedding embedding{register_module("embedding", torch::nn::Embedding(8, 16'384))};
  torch::nn::Linear dense{register_module("dense", torch::nn::Linear(16'384, 1))};
};
TORCH_MODULE(Net);

// An accuracy whose numbers are on the servers.
struct ServerAccuracy {
  ServerAccuracy(const Strategy& strategy, const std::string& name)
      : hits(strategy.variable(torch::zeros({}), {.name = name + "_hits"})),
        count(strategy.variable(torch::zeros({}), {.name = name + "_count"})) {}
  void update_state(const torch::Tensor& labels, const torch::Tensor& predictions) {
    hits.assign_add(predictions.gt(0.5).eq(labels.gt(0.5)).sum().to(torch::kFloat));
    count.assign_add(torch::tensor(static_cast<float>(labels.size(0))));
  }
  double result() const { return hits.read().item<double>() / count.read().item<double>(); }
  void reset_states() {
    hits.assign(torch::zeros({}));
    count.assign(torch::zeros({}));
  }
  Variable hits, count;
};

// Does the chief's part.
bool coordinate(const ParameterServerStrategy& strategy, const Mirrored<Net>& model, ServerAccuracy& accuracy,
                ServerAccuracy& eval_accuracy) {
  constexpr int kNumEpochs = 4, kStepsPerEpoch = 20, kEvalSteps = 2;
  ClusterCoordinator coordinator(strategy);
  for (int i = 0; i < kNumEpochs; ++i) {
    accuracy.reset_states();
    for (int k = 0; k < kStepsPerEpoch; ++k) coordinator.schedule("step");
    coordinator.join();  // waits for the steps of the epoch
    std::printf("Finished epoch %d, accuracy is %f.\n", i, accuracy.result());
  }
  RemoteValue loss = coordinator.schedule("step");
  std::printf("Final loss is %f\n", loss.fetch()[0].item<double>());

  // Direct evaluation.
  coordinator.pull();
  double right = 0.0, all = 0.0;
  for (const Example& each : feature_and_label_gen(40, 7).batch(8)) {
    const torch::NoGradGuard no_grad;
    right += model[0]->forward(each.x).gt(0.5).eq(each.y.gt(0.5)).sum().item<double>();
    all += static_cast<double>(each.size());
  }
  std::printf("Evaluation accuracy: %f\n", right / all);
  // Distributed evaluation.
  for (int k = 0; k < kEvalSteps; ++k) coordinator.schedule("eval_step");
  coordinator.join();
  std::printf("Evaluation accuracy: %f\n", eval_accuracy.result());
  return right / all > 0.9 && eval_accuracy.result() > 0.9;
}

}  // namespace

int main() {
  torch::manual_seed(1);
  const ParameterServerStrategy strategy(
      {.variable_partitioner = MinSizePartitioner({.min_shard_bytes = 256 << 10, .max_shards = 2})});
  const auto model = strategy.mirror([] { return Net(); });
  const auto optimizer =
      strategy.optimizer(model, RMSprop({.learning_rate = 0.005, .formulation = Formulation::kLegacy}));
  ServerAccuracy accuracy(strategy, "accuracy"), eval_accuracy(strategy, "eval_accuracy");
  const PerWorkerDataset per_worker_dataset = strategy.create_per_worker_dataset([](const InputContext& context) {
    return feature_and_label_gen(200, 1 + static_cast<uint64_t>(context.input_pipeline_id))
        .shuffle(200)
        .batch(32)
        .repeat();
  });
  const PerWorkerDataset per_worker_eval_dataset = strategy.create_per_worker_dataset([](const InputContext& context) {
    return feature_and_label_gen(16, 100 + static_cast<uint64_t>(context.input_pipeline_id)).repeat().batch(8);
  });
  const auto replica_fn = [&](Replica& replica, const Example& batch) {
    const torch::Tensor predictions = model[replica]->forward(batch.x);
    const torch::Tensor loss = compute_average_loss(BinaryCrossentropy().per_example(batch.y, predictions));
    optimizer[replica].minimize(loss);
    accuracy.update_state(batch.y, predictions.detach());
    return loss.detach();
  };
  strategy.register_step("step", [&](const std::vector<torch::Tensor>&) -> std::vector<torch::Tensor> {
    const auto losses = strategy.run(replica_fn, PerReplica<Example>({*per_worker_dataset.next()}));
    return {strategy.reduce(ReduceOp::kSum, losses)};
  });
  strategy.register_step("eval_step", [&](const std::vector<torch::Tensor>&) -> std::vector<torch::Tensor> {
    const Example batch = *per_worker_eval_dataset.next();
    strategy.run([&](Replica& replica) {
      const torch::NoGradGuard no_grad;
      eval_accuracy.update_state(batch.y, model[replica]->forward(batch.x));
    });
    return {};
  });
  if (strategy.serve()) return 0;  // workers and servers stay here
  return coordinate(strategy, model, accuracy, eval_accuracy) ? 0 : 1;
}
