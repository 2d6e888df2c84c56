// TensorFlow's tutorial "Custom training with tf.distribute.Strategy", cell by cell, on two devices: a model that is
// called, a loss without a reduction, regularizers' losses, metrics. Usage: example_custom_training [FOLDER], a folder
// with the files of MNIST; without it on digits that it draws. Ends with the accuracy on the test examples, above 0.9.
#include <torch/torch.h>

#include <cstdio>

#include "cohort/cohort.h"

cohort::Sequential create_model() {
  using namespace cohort;
  const Regularizer l2 = Regularizer::l2(1e-5);
  return {Conv2D({.filters = 32, .kernel_size = 3, .activation = "relu", .kernel_regularizer = l2}),
          MaxPooling2D(),
          Conv2D({.filters = 64, .kernel_size = 3, .activation = "relu", .kernel_regularizer = l2}),
          MaxPooling2D(),
          Flatten(),
          Dense({.units = 64, .activation = "relu", .kernel_regularizer = l2}),
          Dense({.units = 10, .kernel_regularizer = l2})};
}

int main(int argc, char** argv) {
  using namespace cohort;
  constexpr int64_t kEpochs = 3;
  torch::manual_seed(1);
  const auto digits =
      argc > 1 ? datasets::mnist(argv[1]) : datasets::drawn_digits({.train_size = 4'000, .test_size = 500});
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  std::printf("Number of devices: %d\n", strategy.num_replicas_in_sync());
  const int64_t global_batch_size = 32 * strategy.num_replicas_in_sync();
  const auto train_dist_dataset = strategy.distribute(digits.train.shuffle(4'000).batch(global_batch_size));
  const auto test_dist_dataset = strategy.distribute(digits.test.batch(global_batch_size));

  const auto scope = strategy.scope();
  Sequential model = create_model();
  model.build({1, 28, 28});
  const Loss loss_object = SparseCategoricalCrossentropy({.from_logits = true});
  const auto compute_loss = [&](const torch::Tensor& labels, const torch::Tensor& predictions) {
    torch::Tensor loss = compute_average_loss(loss_object.per_example(labels, predictions));
    for (const torch::Tensor& each : model.losses()) loss = loss + scale_regularization_loss(each);
    return loss;
  };
  MirroredMetric test_loss(strategy, Mean({.name = "test_loss"}));
  MirroredMetric train_accuracy(strategy, SparseCategoricalAccuracy({.name = "train_accuracy"}));
  MirroredMetric test_accuracy(strategy, SparseCategoricalAccuracy({.name = "test_accuracy"}));
  auto optimizer = strategy.optimizer(model, Adam({.learning_rate = 0.001}));

  const auto train_step = [&](Replica& replica, const Example& inputs) {
    const torch::Tensor images = inputs.x.view({-1, 1, 28, 28});
    const torch::Tensor predictions = model(images, {.training = true});
    const torch::Tensor loss = compute_loss(inputs.y, predictions);
    optimizer[replica].apply_gradients(torch::autograd::grad({loss}, model.trainable_variables()));
    train_accuracy.update_state(inputs.y, predictions.detach());
    return loss.detach();
  };
  const auto test_step = [&](const Example& inputs) {
    const torch::NoGradGuard no_grad;
    const torch::Tensor predictions = model(inputs.x.view({-1, 1, 28, 28}), {.training = false});
    test_loss.update_state(loss_object.per_example(inputs.y, predictions));
    test_accuracy.update_state(inputs.y, predictions);
  };

  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    double total_loss = 0.0;
    int64_t num_batches = 0;
    for (const auto& x : train_dist_dataset) {
      total_loss += strategy.reduce(ReduceOp::kSum, strategy.run(train_step, x)).item<double>();
      ++num_batches;
    }
    for (const auto& x : test_dist_dataset) strategy.run(test_step, x);
    std::printf("Epoch %ld, Loss: %.4f, Accuracy: %.2f, Test Loss: %.4f, Test Accuracy: %.2f\n",
                static_cast<long>(epoch + 1), total_loss / static_cast<double>(num_batches),
                train_accuracy.result() * 100, test_loss.result(), test_accuracy.result() * 100);
    if (epoch + 1 == kEpochs) break;
    test_loss.reset_state();
    train_accuracy.reset_state();
    test_accuracy.reset_state();
  }
  return test_accuracy.result() > 0.9 ? 0 : 1;
}
