// TensorFlow's tutorial "Custom training loop with Keras and MultiWorkerMirroredStrategy", cell by cell: a loop over
// epochs and steps that a checkpoint lets go on.
//
//   cohort launch --nproc=2 -- example_multi_worker_with_ctl [FOLDER [MNIST]]
//
// FOLDER is for the checkpoints, from which another run goes on. MNIST is a folder with its files; without it the
// digits are drawn. Ends with the accuracy on the test examples, above 0.97 on MNIST and above 0.9 on drawn digits.
#include <torch/torch.h>

#include <cstdio>
#include <filesystem>

#include "cohort/cohort.h"

namespace {

using namespace cohort;

constexpr int64_t kPerWorkerBatchSize = 64, kNumEpochs = 3;

Dataset dataset_fn(const Dataset& train, int64_t global_batch_size, const InputContext& input_context) {
  return train.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
      .shuffle(60'000)
      .repeat()
      .batch(input_context.per_replica_batch_size(global_batch_size));
}

Sequential build_cnn_model() {
  const Regularizer l2 = Regularizer::l2(1e-4);
  Sequential model{Reshape({1, 28, 28}),
                   Conv2D({.filters = 32, .kernel_size = 3, .activation = "relu", .kernel_regularizer = l2}), Flatten(),
                   Dense({.units = 128, .activation = "relu", .kernel_regularizer = l2}), Dense(10)};
  model.build({28, 28});
  return model;
}

double accuracy_of(const Strategy& strategy, const Model& model, const Dataset& test) {
  MirroredMetric accuracy(strategy, SparseCategoricalAccuracy({.name = "accuracy"}));
  for (const GlobalBatch& batch : strategy.distribute(test.batch(100))) {
    strategy.run([&](const Example& share) { accuracy.update_state(share.y, model(share.x)); }, batch);
  }
  return accuracy.result();
}

// Trains, and returns the accuracy on the test examples.
double train(const MultiWorkerMirroredStrategy& strategy, const datasets::TrainTest& digits,
             int64_t num_steps_per_epoch, const std::filesystem::path& checkpoint_dir) {
  const int64_t global_batch_size = kPerWorkerBatchSize * strategy.num_workers();
  const auto scope = strategy.scope();
  Sequential multi_worker_model = build_cnn_model();
  const DistributedDataset multi_worker_dataset = strategy.distribute_from_function(
      [&](const InputContext& input_context) { return dataset_fn(digits.train, global_batch_size, input_context); });
  MirroredOptimizer optimizer = strategy.optimizer(multi_worker_model, SGD({.learning_rate = 0.05, .momentum = 0.9}));
  MirroredMetric train_accuracy(strategy, SparseCategoricalAccuracy({.name = "train_accuracy"}));
  const Loss loss_fn = SparseCategoricalCrossentropy({.from_logits = true});

  const auto step_fn = [&](Replica& replica, const Example& inputs) {
    const torch::Tensor predictions = multi_worker_model(inputs.x, {.training = true});
    torch::Tensor loss = compute_average_loss(loss_fn.per_example(inputs.y, predictions));
    for (const torch::Tensor& each : multi_worker_model.losses()) loss = loss + scale_regularization_loss(each);
    optimizer[replica].apply_gradients(torch::autograd::grad({loss}, multi_worker_model.trainable_variables()));
    train_accuracy.update_state(inputs.y, predictions.detach());
    return loss.detach();
  };
  const auto train_step = [&](DistributedIterator& iterator) {
    return strategy.reduce(ReduceOp::kSum, strategy.run(step_fn, *iterator.next())).item<double>();
  };

  auto epoch = strategy.variable(torch::zeros({}, torch::kLong), {.name = "epoch"});
  auto step_in_epoch = strategy.variable(torch::zeros({}, torch::kLong), {.name = "step_in_epoch"});
  const auto number = [](const Variable& variable) { return variable.read().item<int64_t>(); };
  const torch::Tensor one = torch::ones({}, torch::kLong);
  Checkpoint checkpoint(
      strategy, checkpoint_dir,
      {.modules = {{"model", multi_worker_model}}, .variables = {{"epoch", epoch}, {"step_in_epoch", step_in_epoch}}},
      {.manager = {.max_to_keep = 1}});
  if (checkpoint.restore()) std::printf("Goes on in epoch %ld\n", static_cast<long>(number(epoch)));

  while (number(epoch) < kNumEpochs) {
    DistributedIterator iterator = multi_worker_dataset.iterator();
    double total_loss = 0.0;
    int64_t num_batches = 0;
    while (number(step_in_epoch) < num_steps_per_epoch) {
      total_loss += train_step(iterator);
      ++num_batches;
      step_in_epoch.assign_add(one);
    }
    std::printf("Epoch: %ld, accuracy: %f, train_loss: %f.\n", static_cast<long>(number(epoch)),
                train_accuracy.result(), total_loss / static_cast<double>(num_batches));
    train_accuracy.reset_state();
    epoch.assign_add(one);
    step_in_epoch.assign(torch::zeros({}, torch::kLong));
    checkpoint.save({.step = number(epoch)});  // all workers call it, and the chief writes
  }
  return accuracy_of(strategy, multi_worker_model, digits.test);
}

}  // namespace

int main(int argc, char** argv) {
  torch::manual_seed(1);
  const std::filesystem::path checkpoint_dir =
      argc > 1 ? argv[1] : std::filesystem::temp_directory_path() / "cohort_multi_worker_with_ctl";
  const bool whole = argc > 2;
  const auto digits =
      whole ? datasets::mnist(argv[2]) : datasets::drawn_digits({.train_size = 4'000, .test_size = 500});
  const MultiWorkerMirroredStrategy strategy({.devices = {"/CPU:0"}});
  const double accuracy = train(strategy, digits, whole ? 234 : 70, checkpoint_dir);
  std::printf("Accuracy: %.3f\n", accuracy);
  return accuracy > (whole ? 0.97 : 0.9) ? 0 : 1;
}
