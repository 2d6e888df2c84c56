// Models whose parameters are cut along an axis of a mesh against one device: 20 steps of Adam in float64, with short
// last batches and empty shares.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "cohort/train/more_callbacks.h"
#include "tests/equivalence/mesh_runs.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::equivalence::mesh_test {
namespace {

using namespace mesh_runs;

// docs/parallelism.md has these lines.
Sequential sample() {
  const MeshStrategy strategy(DeviceMesh({2, 2}, {"batch", "model"}, cpu_devices(4)),
                              {.layout = {{"hidden\\.weight", {"model", ""}},  // by columns: its units
                                          {"hidden\\.bias", {"model"}},
                                          {"output\\.weight", {"", "model"}}}});  // by rows: its inputs
  const auto scope = strategy.scope();
  Sequential model{Dense({.units = 64, .activation = "gelu", .name = "hidden"}),
                   Dense({.units = 10, .name = "output"})};
  model.build({32});
  return model;
}

TEST(Mesh, TheSampleHasPartsOfWholeWeights) {
  const Sequential model = sample();
  const NamedTensors weights = model.weights();
  ASSERT_EQ(weights.size(), 4u);
  EXPECT_EQ(weights[0].second.sizes(), torch::IntArrayRef({64, 32}));
  EXPECT_EQ(weights[2].second.sizes(), torch::IntArrayRef({10, 64}));
  for (const auto& copy : model.module().copies()) {
    EXPECT_EQ(copy->parameters()[0].sizes(), torch::IntArrayRef({32, 32}));
    EXPECT_EQ(copy->parameters()[1].sizes(), torch::IntArrayRef({32}));
    EXPECT_EQ(copy->parameters()[2].sizes(), torch::IntArrayRef({10, 32}));
    EXPECT_EQ(copy->parameters()[3].sizes(), torch::IntArrayRef({10}));
  }
}

MeshStrategy mesh_of(int batch, int model, const LayoutMap& layout) {
  return MeshStrategy(DeviceMesh({batch, model}, {"batch", "model"}, cpu_devices(batch * model)), {.layout = layout});
}

TEST(Mesh, LearnsAsOneDevice) {
  for (const Net& net : nets()) {
    const Outcome wanted = under(OneDeviceStrategy("/CPU:0"), net, Adam({.learning_rate = 0.02}));
    EXPECT_LT(wanted.history["loss"].back(), wanted.history["loss"].front());
    for (const auto& [batch, model] : {std::pair(1, 2), std::pair(2, 2), std::pair(2, 3)}) {
      SCOPED_TRACE(c10::str(net.name, " on batch ", batch, " x model ", model));
      expect_like(under(mesh_of(batch, model, net.layout), net, Adam({.learning_rate = 0.02})), wanted);
    }
  }
}

MeshStrategy sharded_mesh(int batch, int model, const LayoutMap& layout, int stage) {
  return MeshStrategy(DeviceMesh({batch, model}, {"batch", "model"}, cpu_devices(batch * model)),
                      {.layout = layout, .sharding = shared_states(stage)});
}

// The replicas of a line along the batch share the states of the parts that they have (ZeRO beside tensor parallelism).
TEST(Mesh, SharesTheStatesOfParts) {
  for (const Net& net : nets()) {
    AdamOptions options{.learning_rate = 0.02};
    options.ema.use_ema = true;
    options.gradient.global_clipnorm = 0.05;
    const Outcome wanted = under(OneDeviceStrategy("/CPU:0"), net, Adam(options));
    for (const int stage : {1, 2, 3}) {
      for (const auto& [batch, model] : {std::pair(1, 2), std::pair(2, 2), std::pair(3, 2)}) {
        SCOPED_TRACE(c10::str(net.name, " on batch ", batch, " x model ", model, ", stage ", stage));
        expect_like(under(sharded_mesh(batch, model, net.layout, stage), net, Adam(options)), wanted);
      }
    }
  }
}

TEST(Mesh, SharedStatesKnowTheNormsOfWholeParameters) {
  const Net net = nets()[3];
  GradientOptions each, scaled;
  each.clipnorm = 0.02;
  scaled.global_clipnorm = 0.05;
  scaled.loss_scale = LossScale{};
  scaled.gradient_accumulation_steps = 2;
  AdamOptions by_parameter{.learning_rate = 0.02};
  by_parameter.gradient = each;
  AdamOptions by_scale{.learning_rate = 0.02};
  by_scale.gradient = scaled;
  for (const Optimizer& rule : {Optimizer(Adam(by_parameter)), Optimizer(Adam(by_scale)),
                                Optimizer(LAMB({.learning_rate = 0.02, .weight_decay = 0.1})),
                                Optimizer(LARS({.learning_rate = 0.5, .weight_decay = 0.01}))}) {
    const Outcome wanted = under(OneDeviceStrategy("/CPU:0"), net, rule);
    for (const int stage : {1, 2, 3}) {
      SCOPED_TRACE(c10::str(rule.name(), ", stage ", stage));
      expect_like(under(sharded_mesh(2, 2, net.layout, stage), net, rule), wanted);
    }
  }
}

TEST(Mesh, RefusesAdafactorForSharedStatesOfParts) {
  const Net net = nets()[3];
  EXPECT_THAT(testing::error_of<Unimplemented>(
                  [&] { (void)under(sharded_mesh(2, 2, net.layout, 1), net, Adafactor({.learning_rate = 0.05})); }),
              ::testing::HasSubstr("Adafactor updates whole parameters, but the layout cuts dense"));
}

TEST(Mesh, NormsAreThoseOfWholeParameters) {
  const Net net = nets()[3];
  GradientOptions all, each, scaled;
  all.global_clipnorm = 0.05;
  each.clipnorm = 0.02;
  scaled.global_clipnorm = 0.05;
  scaled.loss_scale = LossScale{};
  scaled.gradient_accumulation_steps = 2;
  for (const GradientOptions& gradient : {all, each, scaled}) {
    AdamOptions options{.learning_rate = 0.02};
    options.ema.use_ema = true;
    options.gradient = gradient;
    const Outcome wanted = under(OneDeviceStrategy("/CPU:0"), net, Adam(options));
    expect_like(under(mesh_of(2, 2, net.layout), net, Adam(options)), wanted);
  }
}

// Their steps are scaled by the norms of whole parameters.
TEST(Mesh, TrustRatiosAreThoseOfWholeParameters) {
  const Net net = nets()[3];
  const std::vector<Optimizer> rules = {
      LAMB({.learning_rate = 0.02, .weight_decay = 0.1}), LARS({.learning_rate = 0.5, .weight_decay = 0.01}),
      LARS({.learning_rate = 0.5, .weight_decay = 0.01, .formulation = Formulation::kTorch})};
  for (const Optimizer& rule : rules) {
    const Outcome wanted = under(OneDeviceStrategy("/CPU:0"), net, rule);
    expect_like(under(mesh_of(2, 2, net.layout), net, rule), wanted);
  }
}

// Its means of rows and columns, and the lengths of steps, are those of whole parameters.
TEST(Mesh, AdafactorsMeansAreThoseOfWholeParameters) {
  AdafactorOptions options{.learning_rate = 0.05, .weight_decay = 0.01};
  options.ema.use_ema = true;
  for (const std::size_t which : {3, 4}) {
    const Net net = nets()[which];
    const Outcome wanted = under(OneDeviceStrategy("/CPU:0"), net, Adafactor(options));
    expect_like(under(mesh_of(2, 2, net.layout), net, Adafactor(options)), wanted);
  }
}

// A module of one's own, by columns.
class Columns final : public torch::nn::Module, public DividedModule {
 public:
  Columns() { weight_ = register_parameter("weight", torch::randn({4, 6}, torch::kDouble)); }
  void divide(const std::map<std::string, ParameterAxes>& axes, const Topology& topology) override {
    axis_ = axes.at("weight")[0];
    EXPECT_EQ(topology.axis(axis_).size, 2);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    if (axis_.empty()) return torch::linear(x, weight_).tanh();
    return gather_along(torch::linear(enter_axis(x, axis_), weight_).tanh(), axis_, -1);
  }

 private:
  torch::Tensor weight_;
  std::string axis_;
};

torch::Tensor after_own_loop(const Strategy& strategy) {
  torch::manual_seed(5);
  const auto scope = strategy.scope();
  const auto net = strategy.mirror([] { return std::make_shared<Columns>(); });
  const MirroredOptimizer adam = strategy.optimizer(net, Adam({.learning_rate = 0.02}));
  torch::manual_seed(6);
  for (int step = 0; step < 20; ++step) {
    const torch::Tensor x = torch::randn({step % 5 == 4 ? 1 : 8, 6}, torch::kDouble);
    const auto shares = strategy.values_from_function([&](const ValueContext& place) {
      const int64_t size = (x.size(0) + place.num_replicas_in_sync - 1) / place.num_replicas_in_sync;
      const int64_t begin = std::min(x.size(0), place.replica_id_in_sync_group * size);
      return Example{.x = x.slice(0, begin, begin + size)};
    });
    strategy.run(
        [&](Replica& replica, const Example& share) {
          const torch::Tensor loss = (net[replica]->forward(share.x) - 0.3).square();
          adam[replica].minimize(replica.global_mean(loss));
        },
        shares);
  }
  return net.state().front().second;
}

TEST(Mesh, ModulesOfOnesOwnLearnAsOnOneDevice) {
  const torch::Tensor wanted = after_own_loop(OneDeviceStrategy("/CPU:0"));
  EXPECT_LT(gap_between(after_own_loop(mesh_of(2, 2, {{"weight", {"model", ""}}})), wanted), kClose);
  EXPECT_NE(testing::error_of<FailedPrecondition>([] {
              const MeshStrategy strategy = mesh_of(1, 2, {{"weight", {"model", ""}}});
              strategy.mirror([] { return std::make_shared<Columns>(); })[std::size_t{0}]->forward(torch::ones({1, 6}));
            }).find("called outside run()"),
            std::string::npos);
}

// The positions of a line draw the same numbers, which are those of a mirrored replica.
TEST(Mesh, DropsOutAsMirroredReplicasDo) {
  Net net = nets()[5];
  net.layers[1] = MultiHeadAttention({.num_heads = 6, .key_dim = 2, .dropout = 0.2});
  net.layers.insert(net.layers.begin() + 2, Dropout(0.3));
  const auto run = [&](const Strategy& strategy) {
    strategy.set_seed(5);
    return under(strategy, net, Adam({.learning_rate = 0.02}));
  };
  expect_like(run(mesh_of(2, 2, net.layout)), run(MirroredStrategy({.devices = cpu_devices(2)})));
}

void expect_same_after_halves(const Optimizer& rule) {
  const Net net = nets()[3];
  const MeshStrategy mesh = mesh_of(2, 2, net.layout);
  const MirroredStrategy mirrored({.devices = cpu_devices(2)});
  const Outcome wanted = under(mirrored, net, rule);
  for (const auto& [first, second] : {std::pair<const Strategy*, const Strategy*>(&mesh, &mirrored),
                                      std::pair<const Strategy*, const Strategy*>(&mirrored, &mesh)}) {
    SCOPED_TRACE(c10::str(first->name(), " goes on under ", second->name()));
    NamedTensors weights, slots;
    {
      const auto scope = first->scope();
      const Outcome half = train(net, made(net, rule), kEpochs / 2);
      weights = half.weights;
      slots = half.slots;
    }
    const auto scope = second->scope();
    const Sequential model = made(net, rule);
    model.set_weights(weights);
    model.optimizer().load_state(slots);
    const Outcome got = train(net, model, kEpochs, kEpochs / 2);
    expect_same(got.weights, wanted.weights);
    expect_same(got.slots, wanted.slots);
  }
}

TEST(Mesh, CheckpointsAreThoseOfOtherStrategies) {
  expect_same_after_halves(Adam({.learning_rate = 0.02}));
  expect_same_after_halves(Adafactor({.learning_rate = 0.05}));
}

void expect_backups_to_go_on(const Optimizer& rule, bool sharded) {
  const Net net = nets()[3];
  const auto run = [&](const Strategy& strategy, int64_t epochs, const std::filesystem::path& folder) {
    const auto scope = strategy.scope();
    Sequential model = made(net, rule);
    const auto backup = BackupAndRestore({.directory = folder, .delete_checkpoint = false, .sharded = sharded});
    (void)model.fit(batches(net), {.epochs = epochs, .callbacks = {backup}, .verbose = Verbose::kSilent});
    return model.weights();
  };
  const MeshStrategy mesh = mesh_of(2, 2, net.layout);
  const MirroredStrategy mirrored({.devices = cpu_devices(2)});
  const testing::TemporaryFolder whole, parts, wanted;
  run(mesh, kEpochs / 2, parts.path());
  run(mirrored, kEpochs / 2, whole.path());
  const NamedTensors weights = run(mirrored, kEpochs, wanted.path());
  expect_same(run(mirrored, kEpochs, parts.path()), weights);
  expect_same(run(mesh, kEpochs, whole.path()), weights);
}

TEST(Mesh, ABackupGoesOnUnderAnotherStrategy) {
  expect_backups_to_go_on(Adam({.learning_rate = 0.02}), /*sharded=*/false);
  expect_backups_to_go_on(Adafactor({.learning_rate = 0.05}), /*sharded=*/true);
}

// Returns the averages of a Controller's training, which goes on from the folder's checkpoint.
NamedTensors averages_after(const Strategy& strategy, int64_t steps, const std::filesystem::path& folder) {
  const Net net = nets()[3];
  const auto scope = strategy.scope();
  Sequential model = made(net, Adam({.learning_rate = 0.02}));
  const auto trainer = std::make_shared<ModelTrainer>(
      model,
      ModelTrainerOptions{.train = batches(net).repeat(), .ema = {.average_decay = 0.9}, .verbose = Verbose::kSilent});
  Controller({.trainer = trainer, .steps_per_loop = 5, .checkpoint_dir = folder}).train(steps);
  const NamedTensors before = model.weights();
  NamedTensors averages;
  trainer->with_averages([&] { averages = model.weights(); });
  expect_same(model.weights(), before);
  return averages;
}

TEST(Mesh, AveragesAreThoseOfWholeParameters) {
  const testing::TemporaryFolder folder;
  const MeshStrategy mesh = mesh_of(2, 2, nets()[3].layout);
  const OneDeviceStrategy one("/CPU:0");
  const NamedTensors wanted = averages_after(one, 20, folder / "wanted");
  averages_after(mesh, 5, folder / "mesh");
  averages_after(one, 10, folder / "mesh");  // each goes on with the other's
  expect_same(averages_after(mesh, 20, folder / "mesh"), wanted);
}

TEST(Mesh, LayoutsThatDoNotFitAreNamed) {
  const auto error = [](const std::vector<Layer>& layers, const LayoutMap& layout, int model = 2) {
    return testing::error_of<Error>([&] {
      const MeshStrategy strategy = mesh_of(2, model, layout);
      const auto scope = strategy.scope();
      Sequential net(layers, {.dtype = torch::kDouble});
      net.build({6});
    });
  };
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  const std::vector<Layer> net = perceptron();
  expect(error(net, {{"dense_9", {"model", ""}}}), "\"dense_9\" matches no parameter of the module, only dense.weight");
  expect(error(net, {{"dense.weight", {"model"}}}), "dense.weight has the shape [12, 6], but {\"model\"} has 1 axes");
  expect(
      error(net, {{"dense.weight", {"", "model"}}}, 4),
      "dimension 1 of dense.weight has 6 elements, which 4 replicas along \"model\" do not divide; sizes of the axis "
      "that would: 1, 2, 3, 6");
  expect(error(net, {{"dense.weight", {"model", ""}}}), "it can cut weight {\"model\", \"\"} and bias {\"model\"}");
  const std::vector<Layer> heads = {Reshape({3, 2}), MultiHeadAttention({.num_heads = 2, .key_dim = 6})};
  const auto by_heads = nets()[5].layout;
  expect(error(heads, by_heads, 3), "has 2 heads, which 3 replicas along \"model\" do not divide");
  expect(error(heads, {{"query\\.weight", {"model", ""}}}), "it can cut the weights {\"model\", \"\"} and the biases");
  expect(error(net, {{"dense.weight", {"model", "model"}}}), "along one axis only");
  expect(error(net, {{"dense.weight", {"batch", ""}}}), "which does not divide parameters");
  expect(error(net, {{"dense.weight", {"mode", ""}}}), "there is no axis \"mode\"");
  expect(error(net, {{"e.weight", {"model", ""}}, {"dense", {"model"}}}), "are both found in the name dense.weight");
  expect(error(net, {}), "the layout cuts no parameter along \"model\"");
  expect(error({Dense(4), LayerNormalization()}, {{"normalization.weight", {"model"}}}), "computes with whole");
  expect(error({Dense({.units = 4, .kernel_regularizer = Regularizer::l2(0.1)})}, {{"weight", {"", "model"}}}),
         "has a regularizer");
}

TEST(Mesh, AxesThatDivideLayersAreNamed) {
  EXPECT_NE(testing::error_of<Unimplemented>([] {
              MeshStrategy(DeviceMesh({2}, {"stage"}, cpu_devices(2)));
            }).find("\"stage\""),
            std::string::npos);
}

}  // namespace
}  // namespace cohort::equivalence::mesh_test
