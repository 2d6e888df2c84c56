// TensorFlow's tutorial "Custom training with tf.distribute.Strategy", cell by cell, on two devices: a model that is
// called, a loss without a reduction, regularizers' losses, metrics, checkpoints, iterators. Usage:
// example_custom_training [FOLDER], a folder with the files of MNIST; without it on digits that it draws. Ends with the
// accuracy on the test examples of a model that was restored without a strategy, above 0.97 on MNIST and above 0.9 on
// drawn digits.
#include <torch/torch.h>

#include <cstdio>
#include <filesystem>

#include "cohort/cohort.h"

namespace {

using namespace cohort;

constexpr int kEpochs = 3;

Sequential create_model() {
  const Regularizer l2 = Regularizer::l2(1e-5);
  Sequential model{Conv2D({.filters = 32, .kernel_size = 3, .activation = "relu", .kernel_regularizer = l2}),
                   MaxPooling2D(),
                   Conv2D({.filters = 64, .kernel_size = 3, .activation = "relu", .kernel_regularizer = l2}),
                   MaxPooling2D(),
                   Flatten(),
                   Dense({.units = 64, .activation = "relu", .kernel_regularizer = l2}),
                   Dense({.units = 10, .kernel_regularizer = l2})};
  model.build({1, 28, 28});
  return model;
}

// The notebook's model, optimizer and metrics, which its functions share. Made in the scope of the strategy.
struct Training {
  explicit Training(const Strategy& of, const std::filesystem::path& checkpoint_dir)
      : strategy(of),
        checkpoint(of, checkpoint_dir, {.modules = {{"model", model}}, .optimizers = {{"optimizer", optimizer}}}) {}

  torch::Tensor compute_loss(const torch::Tensor& labels, const torch::Tensor& predictions,
                             const std::vector<torch::Tensor>& model_losses) const {
    torch::Tensor loss = compute_average_loss(loss_object.per_example(labels, predictions));
    for (const torch::Tensor& each : model_losses) loss = loss + scale_regularization_loss(each);
    return loss;
  }

  torch::Tensor train_step(Replica& replica, const Example& inputs) {
    const torch::Tensor predictions = model(inputs.x, {.training = true});
    const torch::Tensor loss = compute_loss(inputs.y, predictions, model.losses());
    optimizer[replica].apply_gradients(torch::autograd::grad({loss}, model.trainable_variables()));
    train_accuracy.update_state(inputs.y, predictions.detach());
    return loss.detach();
  }

  void test_step(const Example& inputs) {
    const torch::NoGradGuard no_grad;
    const torch::Tensor predictions = model(inputs.x, {.training = false});
    test_loss.update_state(loss_object.per_example(inputs.y, predictions));
    test_accuracy.update_state(inputs.y, predictions);
  }

  double distributed_train_step(const GlobalBatch& dataset_inputs) {
    const auto per_replica_losses = strategy.run(
        [this](Replica& replica, const Example& inputs) { return train_step(replica, inputs); }, dataset_inputs);
    return strategy.reduce(ReduceOp::kSum, per_replica_losses).item<double>();
  }

  void distributed_test_step(const GlobalBatch& dataset_inputs) {
    strategy.run([this](const Example& inputs) { test_step(inputs); }, dataset_inputs);
  }

  // The loop over the data, in one function.
  double distributed_train_epoch(const DistributedDataset& dataset) {
    double total_loss = 0.0;
    int64_t num_batches = 0;
    for (const GlobalBatch& x : dataset) {
      total_loss += distributed_train_step(x);
      ++num_batches;
    }
    return total_loss / static_cast<double>(num_batches);
  }

  Strategy strategy;
  Loss loss_object = SparseCategoricalCrossentropy({.from_logits = true});
  MirroredMetric test_loss{strategy, Mean({.name = "test_loss"})};
  MirroredMetric train_accuracy{strategy, SparseCategoricalAccuracy({.name = "train_accuracy"})};
  MirroredMetric test_accuracy{strategy, SparseCategoricalAccuracy({.name = "test_accuracy"})};
  Sequential model = create_model();
  MirroredOptimizer optimizer = strategy.optimizer(model, Adam({.learning_rate = 0.001}));
  Checkpoint checkpoint;
};

void train(Training& training, const DistributedDataset& train_dist_dataset,
           const DistributedDataset& test_dist_dataset) {
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    double total_loss = 0.0;
    int64_t num_batches = 0;
    for (const GlobalBatch& x : train_dist_dataset) {
      total_loss += training.distributed_train_step(x);
      ++num_batches;
    }
    for (const GlobalBatch& x : test_dist_dataset) training.distributed_test_step(x);
    if (epoch % 2 == 0) training.checkpoint.save({.step = epoch + 1});
    std::printf("Epoch %d, Loss: %.4f, Accuracy: %.2f, Test Loss: %.4f, Test Accuracy: %.2f\n", epoch + 1,
                total_loss / static_cast<double>(num_batches), training.train_accuracy.result() * 100,
                training.test_loss.result(), training.test_accuracy.result() * 100);
    training.test_loss.reset_state();
    training.train_accuracy.reset_state();
    training.test_accuracy.reset_state();
  }
}

// Ten steps an epoch, with an iterator; then the loop over the data in a function.
void train_in_other_ways(Training& training, const DistributedDataset& train_dist_dataset) {
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    double total_loss = 0.0;
    DistributedIterator train_iter = train_dist_dataset.iterator();
    for (int i = 0; i < 10; ++i) total_loss += training.distributed_train_step(*train_iter.next());
    std::printf("Epoch %d, Loss: %.4f, Accuracy: %.2f\n", epoch + 1, total_loss / 10,
                training.train_accuracy.result() * 100);
    training.train_accuracy.reset_state();
  }
  const double train_loss = training.distributed_train_epoch(train_dist_dataset);
  std::printf("Loss: %.4f, Accuracy: %.2f\n", train_loss, training.train_accuracy.result() * 100);
}

// Returns the accuracy of the newest checkpoint, without a strategy.
double accuracy_of_checkpoint(const std::filesystem::path& checkpoint_dir, const Dataset& test_dataset) {
  const DefaultStrategy none;
  const auto scope = none.scope();
  MirroredMetric eval_accuracy(none, SparseCategoricalAccuracy({.name = "eval_accuracy"}));
  Sequential new_model = create_model();
  MirroredOptimizer new_optimizer = none.optimizer(new_model, Adam());
  const auto eval_step = [&](const torch::Tensor& images, const torch::Tensor& labels) {
    const torch::NoGradGuard no_grad;
    eval_accuracy.update_state(labels, new_model(images, {.training = false}));
  };
  Checkpoint checkpoint(none, checkpoint_dir,
                        {.modules = {{"model", new_model}}, .optimizers = {{"optimizer", new_optimizer}}});
  checkpoint.restore();
  for (const Example& batch : test_dataset) eval_step(batch.x, batch.y);
  return eval_accuracy.result();
}

}  // namespace

int main(int argc, char** argv) {
  torch::manual_seed(1);
  const auto digits =
      argc > 1 ? datasets::mnist(argv[1]) : datasets::drawn_digits({.train_size = 4'000, .test_size = 500});
  const std::filesystem::path checkpoint_dir = std::filesystem::temp_directory_path() / "cohort_custom_training";
  std::filesystem::remove_all(checkpoint_dir);

  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  std::printf("Number of devices: %d\n", strategy.num_replicas_in_sync());
  constexpr int64_t kBufferSize = 4'000, kBatchSizePerReplica = 32;
  const int64_t global_batch_size = kBatchSizePerReplica * strategy.num_replicas_in_sync();
  const auto with_channel = [](Example each) {
    each.x = each.x.unsqueeze(0);
    return each;
  };
  const Dataset train_dataset = digits.train.map(with_channel).shuffle(kBufferSize).batch(global_batch_size);
  const Dataset test_dataset = digits.test.map(with_channel).batch(global_batch_size);
  const DistributedDataset train_dist_dataset = strategy.distribute(train_dataset);
  const DistributedDataset test_dist_dataset = strategy.distribute(test_dataset);
  {
    const auto scope = strategy.scope();
    Training training(strategy, checkpoint_dir);
    train(training, train_dist_dataset, test_dist_dataset);
    train_in_other_ways(training, train_dist_dataset);
  }
  const double accuracy = accuracy_of_checkpoint(checkpoint_dir, test_dataset);
  std::printf("Accuracy after restoring the saved model without strategy: %.2f\n", accuracy * 100);
  std::error_code still_used;
  std::filesystem::remove_all(checkpoint_dir, still_used);
  return accuracy > (argc > 1 ? 0.97 : 0.9) ? 0 : 1;
}
