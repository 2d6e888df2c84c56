// Models of the zoo whose blocks are divided among stages, in one process and over workers: those with batch norms
// against LibTorch alone, a microbatch after the other, and BERT, whose loss leaves masked tokens out, against one
// device.
#include <torch/torch.h>

#include "cohort/cohort.h"
#include "cohort/models/layouts.h"
#include "cohort/parallel/pipeline_strategy.h"
#include "tests/equivalence/bert_runs.h"
#include "tests/equivalence/pipeline_workers.h"

namespace cohort::equivalence::pipeline_models_test {
namespace {

using bert_runs::first_values;
using pipeline_workers::Shape;
using pipeline_workers::with_stages;

constexpr int kMicrobatches = 3;
constexpr double kEpsilon = 1e-3;  // far above the rounding that a bias before a norm has for a gradient

struct Net {
  std::string name;
  std::function<std::shared_ptr<LayerModule>()> make;
  std::vector<int64_t> image;
  int steps = 20;
};

std::shared_ptr<LayerModule> in_double(const std::shared_ptr<LayerModule>& module) {
  module->to(torch::kDouble);
  return module;
}

// The U-Net's images are of an odd size, and its cuts lie on both ways.
std::vector<Net> nets() {
  return {
      {"resnet_cifar", [] { return in_double(models::resnet_cifar(1, {.num_classes = 5})); }, {3, 8, 9}},
      {"resnet18",
       [] { return in_double(models::resnet18({.num_classes = 5})); },
       {3, 32, 32},
       /*steps=*/2},
      {"efficientnet",
       [] {
         return in_double(models::efficientnet(0, {.num_classes = 5, .dropout = 0.0, .stochastic_depth_prob = 0.0}));
       },
       {3, 16, 16},
       /*steps=*/1},
      {"unet", [] { return in_double(models::unet({.num_classes = 3, .filters = 3, .levels = 2})); }, {3, 7, 9}}};
}

torch::Tensor input_of(const Net& net, int step) {
  std::vector<int64_t> sizes = net.image;
  sizes.insert(sizes.begin(), step % 3 == 2 ? 4 : 8);
  return torch::randn(sizes, mesh_runs::generator(static_cast<uint64_t>(100 + step)), torch::kDouble);
}

struct Result {
  std::vector<double> losses;
  NamedTensors state;
};

NamedTensors state_of(const MirroredModule& net) {
  NamedTensors list;
  for (const auto& [name, value] : net.state()) list.emplace_back(name, value.to(torch::kDouble).clone());
  return list;
}

Result alone(const Net& net) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto copies = strategy.mirror(net.make);
  copies.load_state(first_values(copies.state()));
  const std::shared_ptr<LayerModule>& module = copies[std::size_t{0}];
  torch::optim::Adam rule(module->parameters(), torch::optim::AdamOptions(0.01).eps(kEpsilon));
  Result result;
  for (int step = 0; step < net.steps; ++step) {
    const torch::Tensor x = input_of(net, step);
    rule.zero_grad();
    double total = 0.0;
    for (const torch::Tensor& part : x.tensor_split(kMicrobatches)) {
      const torch::Tensor each = (module->forward(part) - 1.0).square();
      const torch::Tensor loss = each.sum() / static_cast<double>(each[0].numel() * x.size(0));
      loss.backward();
      total += loss.item<double>();
    }
    rule.step();
    result.losses.push_back(total);
  }
  result.state = state_of(copies);
  return result;
}

Result in_stages(const Strategy& strategy, const Net& net) {
  const auto copies = strategy.mirror(net.make);
  copies.load_state(first_values(copies.state()));
  const MirroredOptimizer rule = strategy.optimizer(
      copies, Adam({.learning_rate = 0.01, .epsilon = kEpsilon, .formulation = Formulation::kTorch}));
  Result result;
  for (int step = 0; step < net.steps; ++step) {
    const auto losses = strategy.run(
        [&](Replica& replica, const Example& part) {
          const torch::Tensor loss = replica.global_mean((copies[replica]->forward(part.x) - 1.0).square());
          rule[replica].minimize(loss);
          return loss;
        },
        PerReplica<Example>({Example{.x = input_of(net, step)}}));
    result.losses.push_back(losses[0].item<double>());
  }
  copies.synchronize_buffers();
  result.state = state_of(copies);
  return result;
}

void expect_like(const Result& got, const Result& wanted) {
  ASSERT_EQ(got.losses.size(), wanted.losses.size());
  for (std::size_t step = 0; step < wanted.losses.size(); ++step) {
    EXPECT_NEAR(got.losses[step], wanted.losses[step], kClose) << step;
  }
  expect_same(got.state, wanted.state);
}

std::vector<std::string> cut_of(const Net& net, int chunks) {
  std::vector<int64_t> sizes = net.image;
  sizes.insert(sizes.begin(), 1);
  return layouts::pipeline_cut(*net.make(), torch::zeros(sizes, torch::kDouble), chunks);
}

TEST(PipelineModels, LearnAsOneDeviceWithTheSameMicrobatches) {
  for (const Net& net : nets()) {
    const Result wanted = alone(net);
    for (const PipelineScheduleOptions& schedule :
         {PipelineScheduleOptions(ScheduleInterleaved{.microbatches = kMicrobatches}),
          PipelineScheduleOptions(ScheduleZeroBubbleH1{.microbatches = kMicrobatches})}) {
      SCOPED_TRACE(net.name + ", " + make_schedule(schedule, 2).name());
      expect_like(
          in_stages(PipelineStrategy(
                        {.devices = cpu_devices(2), .schedule = schedule, .cut = cut_of(net, 2 * chunks_of(schedule))}),
                    net),
          wanted);
    }
  }
}

TEST(PipelineModels, LearnOverWorkersAsOneDeviceWithTheSameMicrobatches) {
  for (const Net& net : nets()) {
    if (net.steps < 20) continue;
    SCOPED_TRACE(net.name);
    const Result wanted = alone(net);
    EXPECT_LT(wanted.losses.back(), wanted.losses.front());
    with_stages(
        {.workers = 3, .stages = 3}, Schedule1F1B{.microbatches = kMicrobatches},
        [&](const MultiWorkerPipelineStrategy& strategy) { expect_like(in_stages(strategy, net), wanted); },
        cut_of(net, 3));
  }
}

TEST(PipelineModels, BertLearnsAsOnOneDevice) {
  const bert_runs::Learned wanted = bert_runs::train_bert(OneDeviceStrategy("/CPU:0"));
  EXPECT_LT(wanted.history["loss"].back(), wanted.history["loss"].front());
  const std::vector<std::string> cut = layouts::pipeline_cut(bert_runs::bert_options(), 2);
  EXPECT_EQ(cut, std::vector<std::string>{"layer.1"});
  const PipelineScheduleOptions schedule = ScheduleZeroBubbleH1{.microbatches = kMicrobatches};
  expect_like(bert_runs::train_bert(PipelineStrategy({.devices = cpu_devices(2), .schedule = schedule, .cut = cut})),
              wanted);
  const DeviceMesh mesh({2, 2}, {"batch", "stage"}, cpu_devices(4));
  expect_like(bert_runs::train_bert(PipelineStrategy({.mesh = mesh, .schedule = schedule, .cut = cut})), wanted);
  for (const Shape& shape : {Shape{}, Shape{.workers = 4, .batch = 2}}) {
    SCOPED_TRACE(shape.workers);
    with_stages(
        shape, Schedule1F1B{.microbatches = kMicrobatches},
        [&](const MultiWorkerPipelineStrategy& strategy) { expect_like(bert_runs::train_bert(strategy), wanted); },
        cut);
  }
}

}  // namespace
}  // namespace cohort::equivalence::pipeline_models_test
