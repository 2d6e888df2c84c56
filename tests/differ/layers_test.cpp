// Random Sequential models of the library's layers, trained by fit() in memory that is NaN until it is written:
// replicas, pipelines and meshes in float64 against one device, and one device in float32, whose kernels are others,
// against float64.
#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include "cohort/cohort.h"
#include "cohort/parallel/mesh_strategy.h"
#include "cohort/parallel/pipeline_strategy.h"
#include "tests/differ/layer_spec.h"
#include "tests/differ/random.h"
#include "tests/support/poisoned_allocator.h"

namespace cohort::differ::layers_test {
namespace {

using torch::Tensor;

constexpr int64_t kClasses = 4;
constexpr int64_t kWords = 11;

struct LayersRecipe {
  LayersRecipe() = default;
  explicit LayersRecipe(Random& random);

  std::string difference() const;
  std::vector<LayersRecipe> simpler() const;
  std::string text() const;

  bool words = false;             // tokens and an embedding, else images of four channels
  int64_t height = 4, width = 4;  // of an image; height: of a sequence
  std::vector<LayerSpec> layers;
  int64_t rows = 10, batch = 4;
  int64_t way = 0;           // index in ways()
  int64_t replicas = 2;      // or stages, or the size of a mesh's first axis
  int64_t across = 2;        // the size of a mesh's second axis
  int64_t microbatches = 2;  // of pipelines
  int64_t accumulation = 1;
  bool weighted = false;

 private:
  bool in_pipeline() const;
  Sequential made(torch::ScalarType dtype) const;
  Dataset data(torch::ScalarType dtype) const;
  std::vector<Tensor> outcome(const Strategy& strategy, torch::ScalarType dtype) const;
  Strategy strategy() const;
};

const std::vector<std::string>& ways() {
  static const std::vector<std::string> list = {"mirrored",    "stage 1", "stage 2",     "stage 3",
                                                "gpipe",       "1f1b",    "interleaved", "zero bubble",
                                                "batch stage", "mesh",    "float32"};
  return list;
}

bool LayersRecipe::in_pipeline() const {
  return way >= 4 && way <= 8;
}

LayersRecipe::LayersRecipe(Random& random)
    : words(random.once_in(3)),
      height(random.between(2, 6)),
      width(random.between(1, 6)),
      rows(random.between(1, 14)),
      batch(random.between(1, 7)),
      way(random.between(0, static_cast<int64_t>(ways().size()) - 1)),
      replicas(random.between(2, 3)),
      across(random.between(1, 2)),
      microbatches(random.between(1, 4)),
      accumulation(random.once_in(5) ? 2 : 1),
      weighted(random.once_in(4)) {
  for (int64_t count = random.between(1, 6); count > 0; --count) {
    LayerSpec s;
    const int64_t begin = words ? kImageKinds : 0;
    s.kind = random.once_in(3) ? kImageKinds + kSequenceKinds + random.between(0, kPlainKinds - 1)
                               : begin + random.between(0, (words ? kSequenceKinds : kImageKinds) - 1);
    // Its statistics are those of a whole share, which a pipeline does not have.
    if (s.kind == kBatchNorm && in_pipeline()) s.kind = kGroupNorm;
    s.width = random.between(1, 4);
    for (int64_t& side : s.kernel) side = random.between(1, 3);
    s.stride = random.once_in(3) ? 2 : 1;
    s.activation = random.between(0, 40);
    s.same = random.once_in(2);
    s.bias = !random.once_in(3);
    s.trainable = !random.once_in(8);
    s.checkpointed = !in_pipeline() && random.once_in(8);
    layers.push_back(s);
  }
}

std::string LayersRecipe::text() const {
  std::string all =
      c10::str("  ", ways().at(way), " of ", replicas, " by ", across, ", ", microbatches, " microbatches, ", rows,
               " rows in batches of ", batch, ", accumulation ", accumulation, weighted ? ", weighted" : "", ", ",
               words ? "words" : "images", " ", height, "x", width, "\n");
  for (const LayerSpec& layer : layers) all += "  " + layer.text() + "\n";
  return all;
}

std::vector<LayersRecipe> LayersRecipe::simpler() const {
  std::vector<LayersRecipe> all;
  const auto with = [&](const std::function<void(LayersRecipe&)>& change) {
    LayersRecipe next = *this;
    change(next);
    if (next.text() != text()) all.push_back(std::move(next));
  };
  for (std::size_t i = 0; i < layers.size(); ++i) {
    with([i](LayersRecipe& r) { r.layers.erase(r.layers.begin() + static_cast<int64_t>(i)); });
  }
  with([](LayersRecipe& r) { r.rows = r.batch; });
  with([](LayersRecipe& r) { r.rows = r.batch = 1; });
  with([](LayersRecipe& r) { r.replicas = 2; });
  with([](LayersRecipe& r) { r.across = 1; });
  with([](LayersRecipe& r) { r.microbatches = 1; });
  with([](LayersRecipe& r) { r.accumulation = 1; });
  with([](LayersRecipe& r) { r.weighted = false; });
  with([](LayersRecipe& r) { r.height = 2; });
  with([](LayersRecipe& r) { r.width = 1; });
  for (std::size_t i = 0; i < layers.size(); ++i) {
    with([i](LayersRecipe& r) { r.layers[i].checkpointed = false; });
    with([i](LayersRecipe& r) { r.layers[i].trainable = true; });
    with([i](LayersRecipe& r) { r.layers[i].activation = 0; });
    with([i](LayersRecipe& r) { r.layers[i].width = 1; });
    with([i](LayersRecipe& r) { r.layers[i].stride = 1; });
    with([i](LayersRecipe& r) { r.layers[i].kernel[0] = r.layers[i].kernel[1] = 1; });
  }
  return all;
}

at::Generator generator(uint64_t seed) {
  return at::make_generator<at::CPUGeneratorImpl>(seed);
}

Sequential LayersRecipe::made(torch::ScalarType dtype) const {
  std::vector<Layer> all;
  if (words) all.push_back(Embedding(kWords, 4));
  for (std::size_t i = 0; i < layers.size(); ++i) all.push_back(layers[i].made(static_cast<int64_t>(i)));
  all.push_back(Flatten());
  while (all.size() < 9) all.push_back(Dense(4));  // a chunk for each of the most stages
  all.push_back(Dense({.units = kClasses, .name = "head"}));
  Sequential model(all, {.dtype = dtype});
  model.build(words ? Shape{height} : Shape{4, height, width}, words ? torch::kLong : dtype);
  NamedTensors weights = model.weights();
  const at::Generator own = generator(3);
  for (auto& [name, value] : weights) {
    const bool learned = name.find("running_") == std::string::npos && value.is_floating_point();
    if (learned) value = (torch::randn(value.sizes(), own, torch::kDouble) * 0.4).to(dtype);
  }
  model.set_weights(weights);
  model.compile({.optimizer = SGD({.learning_rate = 0.05,
                                   .momentum = 0.5,
                                   .gradient = {.global_clipnorm = 1.0, .gradient_accumulation_steps = accumulation}}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true})});
  return model;
}

Dataset LayersRecipe::data(torch::ScalarType dtype) const {
  const at::Generator own = generator(7);
  const Tensor x = words ? torch::randint(kWords, {rows, height}, own, torch::kLong)
                         : torch::randn({rows, 4, height, width}, own, torch::kDouble).to(dtype);
  Example columns{.x = x, .y = torch::randint(kClasses, {rows}, own, torch::kLong)};
  if (weighted) columns.weight = torch::rand({rows}, own, torch::kDouble).to(dtype);
  return Dataset::from_tensor_slices(columns).batch(batch);
}

// The losses of two epochs, what is predicted, and the weights.
std::vector<Tensor> LayersRecipe::outcome(const Strategy& strategy, torch::ScalarType dtype) const {
  const auto scope = strategy.scope();
  Sequential model = made(dtype);
  const Dataset all = data(dtype);
  const History history = model.fit(all, {.epochs = 2, .verbose = Verbose::kSilent});
  std::vector<Tensor> outcome = {torch::tensor(history["loss"], torch::kDouble), model.predict(all).to(torch::kDouble)};
  for (const auto& [name, value] : model.weights()) outcome.push_back(value.to(torch::kDouble));
  return outcome;
}

Strategy LayersRecipe::strategy() const {
  const std::string& name = ways().at(way);
  const int count = static_cast<int>(replicas), second = static_cast<int>(across);
  const int parts = static_cast<int>(microbatches);
  const auto pipeline = [&](const PipelineScheduleOptions& schedule) {
    return PipelineStrategy({.devices = cpu_devices(count), .schedule = schedule});
  };
  if (name == "stage 3") {
    return MirroredStrategy({.devices = cpu_devices(count), .sharding = {.stage = 3, .min_unit_bytes = 0}});
  }
  if (name.starts_with("stage")) {
    return MirroredStrategy({.devices = cpu_devices(count), .sharding = {.stage = name.back() - '0'}});
  }
  if (name == "gpipe") return pipeline(ScheduleGPipe{.microbatches = parts});
  if (name == "1f1b") return pipeline(Schedule1F1B{.microbatches = parts});
  if (name == "interleaved") return pipeline(ScheduleInterleaved{.microbatches = parts, .chunks = second + 1});
  if (name == "zero bubble") return pipeline(ScheduleZeroBubbleH1{.microbatches = parts});
  if (name == "batch stage") {
    return PipelineStrategy({.mesh = DeviceMesh({second, count}, {"batch", "stage"}, cpu_devices(second * count)),
                             .schedule = Schedule1F1B{.microbatches = parts}});
  }
  if (name == "mesh") {
    LayoutMap layout{{"head\\.weight", {"model", ""}}, {"head\\.bias", {"model"}}};
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (layers[i].kind != kImageKinds + kSequenceKinds && layers[i].kind > 1) continue;
      if (layers[i].checkpointed) continue;
      const bool image = layers[i].kind <= 1;
      layout.add(c10::str("layer_", i, "\\.weight"),
                 image ? ParameterAxes{"model", "", "", ""} : ParameterAxes{"model", ""});
      if (layers[i].bias) layout.add(c10::str("layer_", i, "\\.bias"), {"model"});
    }
    return MeshStrategy(DeviceMesh({count, second}, {"batch", "model"}, cpu_devices(count * second)),
                        {.layout = layout});
  }
  if (name == "float32") return OneDeviceStrategy("/CPU:0");
  return MirroredStrategy({.devices = cpu_devices(count)});
}

// Models that one device refuses (a kernel larger than its image, say) are left out and counted.
int refused = 0;

std::string LayersRecipe::difference() const {
  std::vector<Tensor> wanted;
  try {
    wanted = outcome(OneDeviceStrategy("/CPU:0"), torch::kDouble);
  } catch (const InvalidArgument&) {
    ++refused;
    return "";
  }
  try {
    const bool narrow = ways().at(way) == "float32";
    const std::vector<Tensor> got = outcome(strategy(), narrow ? torch::kFloat : torch::kDouble);
    if (got.size() != wanted.size()) return c10::str("has ", got.size(), " results, wanted ", wanted.size());
    double far = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (!got[i].sizes().equals(wanted[i].sizes())) return c10::str("result ", i, " has other sizes");
      if (got[i].numel() == 0) continue;
      const double here = ((got[i] - wanted[i]).abs() / (1 + wanted[i].abs())).max().item<double>();
      far = here >= 0 ? std::max(far, here) : INFINITY;  // NaN
    }
    return far < (narrow ? 1e-3 : 1e-9) ? "" : c10::str("differs by ", far, " from one device in float64");
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
}

TEST(Differ, RandomLayers) {
  testing::PoisonedAllocator::install();
  constexpr uint64_t kSeeds = 200;
  expect_no_difference<LayersRecipe>(kSeeds);
  EXPECT_LT(refused, static_cast<int>(number_in("COHORT_SEEDS", kSeeds)) / 2 + 1);
}

}  // namespace
}  // namespace cohort::differ::layers_test
