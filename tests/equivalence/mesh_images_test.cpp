// Layers of images whose parameters are cut along an axis of a mesh against one device: 20 steps of Adam in float64,
// with short last batches and empty shares.
#include <torch/torch.h>

#include "cohort/trace.h"
#include "tests/equivalence/mesh_runs.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::equivalence::mesh_images_test {
namespace {

using namespace mesh_runs;

MeshStrategy mesh_of(int batch, int model, const LayoutMap& layout) {
  return MeshStrategy(DeviceMesh({batch, model}, {"batch", "model"}, cpu_devices(batch * model)), {.layout = layout});
}

const ParameterAxes kFilters = {"model", "", "", ""}, kInputs = {"", "model", "", ""}, kEach = {"model"};

Layer norm() {
  return BatchNormalization({.momentum = 0.9, .synchronized = true, .name = "norm"});
}

// Gathered behind the first layer, and cut before the second.
Net apart() {
  return {.name = "filters, input channels",
          .layers = {Conv2D({.filters = 6, .kernel_size = 2, .activation = "relu", .name = "first"}),
                     BatchNormalization({.synchronized = true}), MaxPooling2D({.pool_size = 2, .strides = 1}),
                     Conv2D({.filters = 4, .kernel_size = 2, .activation = "tanh", .name = "second"}), Flatten(),
                     Dense(mesh_runs::kClasses)},
          .layout = {{"first.weight", kFilters}, {"first.bias", kEach}, {"second.weight", kInputs}},
          .example = {2, 5, 5}};
}

// In parts from the first layer to the second.
Net together() {
  return {.name = "filters to input channels",
          .layers = {Conv2D({.filters = 6, .kernel_size = 2, .activation = "relu", .name = "first"}),
                     MaxPooling2D({.pool_size = 2, .strides = 1}), norm(), Activation(Activation::kElu),
                     Conv2D({.filters = 4, .kernel_size = 2, .padding = Padding::kSame, .name = "second"}), Flatten(),
                     Dense(mesh_runs::kClasses)},
          .layout = {{"first.weight", kFilters},
                     {"(first|norm).bias", kEach},
                     {"norm.weight", kEach},
                     {"second.weight", kInputs}},
          .example = {2, 4, 5}};
}

// The blocks of MobileNet: pointwise, depthwise and pointwise.
Net separable() {
  return {.name = "filters, groups, units",
          .layers = {Conv2D({.filters = 6, .kernel_size = 1, .activation = "relu6", .name = "first"}),
                     DepthwiseConv2D({.kernel_size = 3,
                                      .padding = Padding::kSame,
                                      .depth_multiplier = 2,
                                      .activation = "silu",
                                      .use_bias = false,
                                      .name = "depth"}),
                     norm(), AveragePooling2D({.pool_size = 2}), GlobalAveragePooling2D(), Dense(mesh_runs::kClasses)},
          .layout = {{"(first|depth).weight", kFilters},
                     {"(first|norm).bias", kEach},
                     {"norm.weight", kEach},
                     {"dense.weight", {"", "model"}}},
          .example = {2, 4, 4}};
}

std::vector<Net> nets() {
  return {apart(),
          together(),
          separable(),
          {.name = "filters to units",
           .layers = {Conv2D({.filters = 6, .kernel_size = 2, .activation = "gelu"}), Flatten(),
                      Dense(mesh_runs::kClasses)},
           .layout = {{"conv2d.weight", kFilters}, {"conv2d.bias", kEach}, {"dense.weight", {"", "model"}}},
           .example = {4, 4}},
          {.name = "groups and channels alone",
           .layers = {Conv2D({.filters = 12, .kernel_size = 2, .groups = 6, .activation = "tanh", .name = "first"}),
                      GlobalMaxPooling2D(), norm(), Dense(mesh_runs::kClasses)},
           .layout = {{"first.weight", kFilters}, {"(first|norm).bias", kEach}, {"norm.weight", kEach}},
           .example = {6, 3, 3}}};
}

TEST(MeshImages, LearnAsOnOneDevice) {
  for (const Net& net : nets()) {
    const Outcome wanted = under(OneDeviceStrategy("/CPU:0"), net, Adam({.learning_rate = 0.02}));
    EXPECT_LT(wanted.history["loss"].back(), wanted.history["loss"].front());
    for (const auto& [batch, model] : {std::pair(1, 2), std::pair(2, 3)}) {
      SCOPED_TRACE(c10::str(net.name, " on batch ", batch, " x model ", model));
      expect_like(under(mesh_of(batch, model, net.layout), net, Adam({.learning_rate = 0.02})), wanted);
    }
  }
}

// A kernel is a batch of matrices, of which each replica has some.
TEST(MeshImages, LearnWithAdafactorAsOnOneDevice) {
  const Net net = together();
  const Optimizer rule = Adafactor({.learning_rate = 0.02});
  expect_like(under(mesh_of(2, 2, net.layout), net, rule), under(OneDeviceStrategy("/CPU:0"), net, rule));
}

// Activations that stay in parts drop out as whole ones.
TEST(MeshImages, DropOutAsMirroredReplicasDo) {
  Net net = together();
  net.layers.insert(net.layers.begin() + 2, Dropout(0.3));
  const auto run = [&](const Strategy& strategy) {
    strategy.set_seed(5);
    return under(strategy, net, Adam({.learning_rate = 0.02}));
  };
  expect_like(run(mesh_of(2, 2, net.layout)), run(MirroredStrategy({.devices = cpu_devices(2)})));
}

// Returns how often the replicas of a line gather in one call of the model.
int64_t gathers_of(const Net& net) {
  const MeshStrategy strategy = mesh_of(1, 2, net.layout);
  const auto scope = strategy.scope();
  Sequential model = made(net, Adam());
  const testing::TemporaryFolder folder;
  Trace trace({.file = folder / "trace.json"});
  (void)model.predict(batches(net).take(1));
  trace.finish();
  const std::string events = testing::read_file(folder / "trace.json");
  int64_t count = 0;
  for (std::size_t at = 0; (at = events.find("\"all_gather\"", at)) != std::string::npos; ++at) ++count;
  return count / 2;
}

TEST(MeshImages, StayInPartsBetweenLayersThatTakeThem) {
  const int64_t others = gathers_of(together());  // those of predict()
  EXPECT_EQ(gathers_of(separable()), others);
  EXPECT_EQ(gathers_of(apart()), others + 1);
}

TEST(MeshImages, LayoutsThatDoNotFitAreNamed) {
  const auto error = [](const Layer& layer, const LayoutMap& layout, int model = 2) {
    return testing::error_of<Error>([&] {
      const MeshStrategy strategy = mesh_of(1, model, layout);
      const auto scope = strategy.scope();
      Sequential net({layer}, {.dtype = torch::kDouble});
      net.build({6, 4, 4});
    });
  };
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  const Layer plain = Conv2D(4, 3), grouped = Conv2D({.filters = 12, .kernel_size = 3, .groups = 3});
  expect(
      error(plain, {{"weight", kFilters}}),
      R"(Conv2D "conv2d" is to cut weight in dimension 0 along "model" and nothing else; it can cut weight {"model", )"
      R"("", "", ""} and bias {"model"} (filters), or weight {"", "model", "", ""} alone (input channels))");
  expect(error(plain, {{"weight", {"", "", "model", ""}}}, 3), "it can cut weight {\"model\"");
  expect(error(plain, {{"weight", kFilters}, {"bias", kEach}}, 3), "sizes of the axis that would: 1, 2, 4");
  expect(error(grouped, {{"weight", kFilters}, {"bias", kEach}}),
         "Conv2D \"conv2d\" has 3 groups, which 2 replicas along \"model\" do not divide; a size of the axis that "
         "divides the groups would fit");
  expect(error(grouped, {{"weight", kInputs}}), R"(can cut weight {"model", "", "", ""} and bias {"model"} (groups))");
  expect(error(SeparableConv2D({.filters = 4, .kernel_size = 3}), {{"depthwise", kFilters}}),
         "computes with whole parameters only; modules that derive from DividedModule, such as the layers Dense, "
         "Conv2D, DepthwiseConv2D");
  expect(error(BatchNormalization(), {{"weight", kEach}}),
         "BatchNormalization \"batch_normalization\" is to cut weight in dimension 0 along \"model\" and nothing else");
  expect(error(Conv2D({.filters = 4, .kernel_size = 3, .kernel_regularizer = Regularizer::l2(0.1)}),
               {{"weight", kInputs}}),
         "the weight of Conv2D \"conv2d\" has a regularizer");
}

}  // namespace
}  // namespace cohort::equivalence::mesh_images_test
