// Outputs of which each replica of a mesh has some classes, with losses and metrics that take them in parts and others
// that gather them, against one device: 20 steps of Adam in float64, with short last batches and empty shares.
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "cohort/models/layouts.h"
#include "tests/equivalence/bert_runs.h"
#include "tests/equivalence/mesh_runs.h"
#include "tests/support/errors.h"

namespace cohort::equivalence::mesh_classes_test {
namespace {

using namespace mesh_runs;

struct Case {
  Net net;
  Loss loss;
  std::vector<Metric> metrics;
  Shape target = {};      // labels of an example
  bool is_dense = false;  // the target has a number for each class
};

// The last layer, cut by columns, makes the classes.
LayoutMap last_columns(const std::string& name) {
  return {{name + "\\.weight$", {"model", ""}}, {name + "\\.bias$", {"model"}}};
}

std::vector<Case> cases() {
  const std::vector<Layer> words = {Embedding(12, 6), Dense({.units = mesh_runs::kClasses, .name = "last"})};
  const Net plain{.name = "plain", .layers = perceptron(), .layout = last_columns("dense_2")};
  const Loss entropy = SparseCategoricalCrossentropy({.from_logits = true});
  Net softmax = plain, relu = plain;
  softmax.layers.back() = Dense(mesh_runs::kClasses, Activation::kSoftmax);
  relu.layers.back() = Dense(mesh_runs::kClasses, Activation::kSoftplus);
  return {{plain, entropy, {SparseCategoricalAccuracy(), "accuracy", SparseTopKCategoricalAccuracy({.k = 2}), entropy}},
          {relu, entropy, {SparseCategoricalAccuracy()}},
          {softmax, SparseCategoricalCrossentropy(), {SparseCategoricalAccuracy()}},
          {{.name = "words", .layers = words, .layout = last_columns("last"), .indices = true},
           entropy,
           {SparseCategoricalAccuracy()},
           {4}},
          {{.name = "some words", .layers = words, .layout = last_columns("last"), .indices = true},
           SparseCategoricalCrossentropy({.from_logits = true, .ignore_class = 2}),
           {SparseCategoricalAccuracy()},
           {4}},
          {plain,
           CategoricalCrossentropy({.from_logits = true, .label_smoothing = 0.1}),
           {CategoricalAccuracy()},
           {},
           true},
          {plain, MeanSquaredError(), {MeanAbsoluteError()}, {}, true},
          {{.name = "pixels",
            .layers = {Conv2D({.filters = mesh_runs::kClasses, .kernel_size = 2})},
            .layout = {{"weight", {"model", "", "", ""}}, {"bias", {"model"}}},
            .example = {2, 4, 3}},
           SparseCategoricalCrossentropy({.from_logits = true, .axis = 1}),
           {},
           {3, 2}}};
}

Dataset data_of(const Case& each) {
  const at::Generator own = generator(7);
  Shape numbers = each.net.example, labels = each.target;
  numbers.insert(numbers.begin(), kRows);
  labels.insert(labels.begin(), kRows);
  const torch::Tensor x =
      each.net.indices ? torch::randint(12, {kRows, 4}, own, torch::kLong) : torch::randn(numbers, own, torch::kDouble);
  const torch::Tensor y = torch::randint(mesh_runs::kClasses, labels, own, torch::kLong);
  const torch::Tensor dense = torch::one_hot(y, mesh_runs::kClasses).to(torch::kDouble);
  return Dataset::from_tensor_slices(x, each.is_dense ? dense : y).batch(12);
}

Outcome run(const Strategy& strategy, const Case& each) {
  const auto scope = strategy.scope();
  Sequential model = made(each.net, Adam());
  model.compile({.optimizer = Adam({.learning_rate = 0.02}), .loss = each.loss, .metrics = each.metrics});
  return outcome_of(model, data_of(each), kEpochs);
}

MeshStrategy mesh_of(int batch, int model, const LayoutMap& layout) {
  return MeshStrategy(DeviceMesh({batch, model}, {"batch", "model"}, cpu_devices(batch * model)), {.layout = layout});
}

TEST(MeshClasses, AreLearnedAsOnOneDevice) {
  for (const Case& each : cases()) {
    const Outcome wanted = run(OneDeviceStrategy("/CPU:0"), each);
    EXPECT_LT(wanted.history["loss"].back(), wanted.history["loss"].front());
    for (const auto& [batch, model] : {std::pair(1, 2), std::pair(2, 3)}) {
      SCOPED_TRACE(c10::str(each.net.name, ", ", each.loss.name(), " on batch ", batch, " x model ", model));
      const Outcome got = run(mesh_of(batch, model, each.net.layout), each);
      for (const std::string& name : wanted.history.names()) {
        const std::vector<double>& values = wanted.history[name];
        for (std::size_t epoch = 0; epoch < values.size(); ++epoch) {
          EXPECT_NEAR(got.history[name].at(epoch), values[epoch], kClose) << name << ", " << epoch;
        }
      }
      expect_same(got.weights, wanted.weights);
      expect_same(got.slots, wanted.slots);
      EXPECT_LT(gap_between(got.predictions, wanted.predictions), kClose);
    }
  }
}

// Logits of hidden tokens alone, some of which do not count, beside another output.
TEST(MeshClasses, HiddenWordsOfBertAreLearnedAsOnOneDevice) {
  const bert_runs::Learned wanted = bert_runs::train_bert(OneDeviceStrategy("/CPU:0"));
  const MeshStrategy strategy(
      DeviceMesh({2, 2}, {"batch", "model"}, cpu_devices(4)),
      {.layout = layouts::transformer(bert_runs::bert_options(), "model", /*cuts_vocabulary=*/true),
       .sequence_parallel = true});
  expect_like(bert_runs::train_bert(strategy), wanted);
}

TEST(MeshClasses, LabelsThatAreNoneAreNamed) {
  const Net net{.name = "plain", .layers = perceptron(), .layout = last_columns("dense_2")};
  const std::string message = testing::error_of<InvalidArgument>([&] {
    const MeshStrategy strategy = mesh_of(1, 2, net.layout);
    const auto scope = strategy.scope();
    Sequential model = made(net, Adam());
    const torch::Tensor x = torch::zeros({4, 6}, torch::kDouble), y = torch::tensor({0, 1, 6, 2}, torch::kLong);
    (void)model.fit(Dataset::from_tensor_slices(x, y).batch(4), {.verbose = Verbose::kSilent});
  });
  EXPECT_NE(message.find("labels from 0 to 6, but the prediction has 6 classes: wanted labels from 0 to 5"),
            std::string::npos)
      << message;
}

// In a loop of the user's own: a module that keeps its classes in parts.
class Classes final : public torch::nn::Module, public DividedModule {
 public:
  Classes() { weight_ = register_parameter("weight", torch::ones({4, 3}, torch::kDouble)); }
  void divide(const std::map<std::string, ParameterAxes>& axes, const Topology& /*topology*/) override {
    axis_ = axes.at("weight")[0];
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return parts_along(torch::linear(enter_axis(x, axis_), weight_), axis_, -1);
  }

 private:
  torch::Tensor weight_;
  std::string axis_;
};

// The replicas that do not have the class of a target look at another one, which may be ruled out.
TEST(MeshClasses, ClassesThatAreRuledOutCountForNoOtherTarget) {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  const MeshStrategy strategy = mesh_of(1, 2, {{"weight", {"model", ""}}});
  const auto net = strategy.mirror([] { return std::make_shared<Classes>(); });
  strategy.run([&](Replica& replica) {
    const torch::Tensor ruled_out = torch::tensor({0.0, 0.0, kNever, 0.0}, torch::kDouble);
    const torch::Tensor logits = net[replica]->forward(torch::ones({3, 3}, torch::kDouble)) + ruled_out;
    const torch::Tensor target = torch::tensor({0, 3, -100}, torch::kLong);  // the last one does not count
    const torch::Tensor loss = torch::nll_loss(logits.log_softmax(-1), target);
    EXPECT_NEAR(loss.item<double>(), std::log(3.0), kClose);
    const auto gradients = torch::autograd::grad({loss}, net[replica]->parameters());
    EXPECT_TRUE(gradients.front().isfinite().all().item<bool>()) << gradients.front();
  });
}

TEST(MeshClasses, OperationsWithoutARuleAreNamed) {
  const MeshStrategy strategy = mesh_of(1, 2, {{"weight", {"model", ""}}});
  const auto net = strategy.mirror([] { return std::make_shared<Classes>(); });
  const auto call = [&](const std::function<torch::Tensor(const torch::Tensor&)>& fn) {
    strategy.run([&](Replica& replica) {
      const torch::Tensor logits = net[replica]->forward(torch::ones({2, 3}, torch::kDouble));
      EXPECT_EQ(logits.sizes(), torch::IntArrayRef({2, 4}));
      (void)fn(logits);
    });
  };
  call([](const torch::Tensor& x) {
    EXPECT_TRUE(x.softmax(-1).sum(-1).allclose(torch::ones({2}, torch::kDouble)));
    EXPECT_TRUE(x.argmax(-1).equal(torch::zeros({2}, torch::kLong)));  // the first of equal ones
    return x;
  });
  const std::string message =
      testing::error_of<Unimplemented>([&] { call([](const torch::Tensor& x) { return x.logcumsumexp(0); }); });
  EXPECT_NE(
      message.find("[space] aten::logcumsumexp of a tensor of [2, 4], cut in 2 parts along dimension 1, cannot be"),
      std::string::npos)
      << message;
}

}  // namespace
}  // namespace cohort::equivalence::mesh_classes_test
