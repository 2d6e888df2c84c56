// Layers that prepare features: what they learn, the forms of categories, models that have them, and their errors.
#include "cohort/train/layers/preprocessing.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

#include "cohort/dataset.h"
#include "cohort/error.h"
#include "cohort/strategy.h"
#include "cohort/train/model.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/train/layer_checks.h"

namespace cohort::preprocessing_test {
namespace {

using testing::build;
using testing::Built;
using testing::expect_close;
using testing::expect_error;
using testing::expect_shape;
using testing::random;
using torch::Tensor;

Tensor integers(std::vector<int64_t> list) {
  return torch::tensor(list, torch::kLong);
}

TEST(NormalizationTest, LearnsWhatAllBatchesHave) {
  torch::manual_seed(4);
  const Tensor x = random({23, 3, 2}) * 4 + 9;
  AdaptedLayer of_all = Normalization({.axis = {1, -1}}), of_batches = Normalization({.axis = {1, -1}});
  of_all.adapt(x);
  // The last batch is short.
  of_batches.adapt(Dataset::from_tensor_slices(x, x).batch(5));
  const Tensor wanted = (x - x.mean(0)) / x.std(0, /*unbiased=*/false);
  const Built layer = build(of_all, {3, 2});
  expect_shape(layer, {3, 2});
  expect_close(layer(x), wanted);
  expect_close(build(of_batches, {3, 2})(x), wanted);
  expect_close(build(Normalization({.axis = {}, .mean = torch::tensor(2.0), .variance = torch::tensor(4.0)}),
                     {3})(integers({1, 2, 6}).view({1, 3})),
               torch::tensor({{-0.5, 0.0, 2.0}}, torch::kDouble));
  EXPECT_EQ(layer["mean"].sizes(), (torch::IntArrayRef{3, 2}));
  EXPECT_EQ(layer["count"].item<int64_t>(), 0);
}

TEST(NormalizationTest, ModelsKeepWhatTheyHave) {
  AdaptedLayer normalize = Normalization({.name = "features"});
  Sequential early({normalize}, {.dtype = torch::kDouble});
  early.build({1});
  const Tensor x = torch::tensor({{1.0}, {3.0}}, torch::kDouble);
  expect_error<FailedPrecondition>([&] { early.predict(x); }, "features (Normalization): the layer knows no mean");
  normalize.adapt(x);
  Sequential model({normalize}, {.dtype = torch::kDouble});
  model.build({1});
  expect_close(model.predict(x), torch::tensor({{-1.0}, {1.0}}, torch::kDouble));
  // Weights bring what was not learned.
  early.set_weights(model.weights());
  expect_close(early.predict(x), torch::tensor({{-1.0}, {1.0}}, torch::kDouble));
  normalize.adapt(x * 2);
  expect_close(model.predict(x), torch::tensor({{-1.0}, {1.0}}, torch::kDouble));
}

TEST(NormalizationTest, StaysTheSameUnderStrategies) {
  torch::manual_seed(6);
  const Tensor x = torch::rand({18, 4}) * 7, y = torch::rand({18, 1});
  AdaptedLayer normalize = Normalization({.name = "features"});
  normalize.adapt(x);
  const auto trained = [&](int replicas) {
    const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
    const StrategyScope scope = strategy.scope();
    Sequential model({normalize, Dense({.units = 1, .kernel_initializer = "zeros"})}, {.dtype = torch::kDouble});
    model.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = "mse"});
    model.fit(x, y, {.epochs = 2, .verbose = Verbose::kSilent, .batch_size = 9, .shuffle = false});
    return model.weights();
  };
  const NamedTensors one = trained(1), three = trained(3);
  for (std::size_t i = 0; i < one.size(); ++i) {
    const bool learned = one[i].first.rfind("features", 0) == 0;
    expect_close(one[i].second.to(torch::kDouble), three[i].second.to(torch::kDouble), learned ? 1e-300 : 1e-9);
  }
}

TEST(NormalizationTest, SaysWhatDoesNotFit) {
  expect_error<InvalidArgument>([] { Normalization({.mean = torch::ones({2})}); }, "given together, got only mean");
  expect_error<InvalidArgument>([] { Normalization({.mean = torch::ones({2}), .variance = torch::ones({3})}); },
                                "have the same shape");
  expect_error<InvalidArgument>(
      [] {
        Normalization({.mean = torch::ones({2, 2}), .variance = torch::ones({2, 2})});
      },
      "at most a dimension for each axis");
  expect_error<InvalidArgument>([] { build(Normalization({.axis = {0}}), {3}); }, "without the batch's");
  expect_error<InvalidArgument>([] { build(Normalization(), {3, -1}); }, "known sizes of axis");
  expect_error<InvalidArgument>(
      [] { build(Normalization({.mean = torch::ones({2}), .variance = torch::ones({2})}), {3}); }, "that fit mean");
  AdaptedLayer layer = Normalization({.name = "norm"});
  expect_error<InvalidArgument>([&] { layer.adapt(torch::tensor(1.0)); }, "norm (Normalization): adapt: the data are");
  expect_error<InvalidArgument>([&] { layer.adapt(torch::ones({0, 3})); }, "there are no data");
  const Dataset rows = Dataset::from_tensor_slices(torch::ones({4, 3}));
  expect_error<InvalidArgument>([&] { layer.adapt(rows); }, "elements that are no batches, wanted batch()");
  expect_error<InvalidArgument>([&] { layer.adapt(rows.batch(2).repeat()); }, "has no end");
  layer.adapt(rows.batch(2));
  expect_error<InvalidArgument>([&] { build(layer, {4}); }, "that the layer was adapted to");
  AdaptedLayer given = Normalization({.mean = torch::tensor(0.0), .variance = torch::tensor(1.0)});
  expect_error<FailedPrecondition>([&] { given.adapt(torch::ones({2, 2})); }, "has nothing to learn");
}

TEST(CategoriesTest, HaveTheirForms) {
  const Built hot = build(CategoryEncoding({.num_tokens = 4}), {3});
  EXPECT_EQ(hot.output, (Shape{4}));
  const Tensor x = integers({0, 2, 2, 3, 9, -1}).view({2, 3});
  expect_close(hot(x), torch::tensor({{1.0, 0.0, 1.0, 0.0}, {0.0, 0.0, 0.0, 1.0}}, torch::kDouble));
  expect_close(build(CategoryEncoding({.num_tokens = 4, .output_mode = OutputMode::kCount}), {-1})(x),
               torch::tensor({{1.0, 0.0, 2.0, 0.0}, {0.0, 0.0, 0.0, 1.0}}, torch::kDouble));
  const CategoryEncodingOptions one_hot = {.num_tokens = 4, .output_mode = OutputMode::kOneHot};
  EXPECT_EQ(build(CategoryEncoding(one_hot), {5, 1}).output, (Shape{5, 4}));
  EXPECT_EQ(build(CategoryEncoding(one_hot), {5, 3}).output, (Shape{5, 3, 4}));
  EXPECT_EQ(build(CategoryEncoding(one_hot), {}).output, (Shape{4}));
  EXPECT_EQ(build(CategoryEncoding(one_hot), {1})(torch::empty({0, 1})).sizes(), (torch::IntArrayRef{0, 4}));
  expect_error<InvalidArgument>([] { CategoryEncoding({}); }, "num_tokens must be positive, got 0");
  expect_error<InvalidArgument>([] { CategoryEncoding({.num_tokens = 2, .output_mode = OutputMode::kInt}); },
                                "output_mode is int, wanted one of one_hot, multi_hot, count");
  expect_error<InvalidArgument>([] { build(CategoryEncoding({.num_tokens = 2}), {2, 2}); }, "wanted [samples]");
  expect_error<InvalidArgument>([&] { build(CategoryEncoding(one_hot), {-1}); }, "a last dimension of known size");
  expect_error<InvalidArgument>([&] { encode_categories(x, {.num_tokens = 4}, torch::ones({2, 3})); }, "count only");
}

TEST(DiscretizationTest, NumbersOnABoundaryAreBehindIt) {
  const Built layer = build(Discretization({.bin_boundaries = {-1.0, 0.5, 2.0}}), {});
  const Tensor x = torch::tensor({-2.0, -1.0, 0.0, 0.5, 2.0, 1e9}, torch::kDouble);
  EXPECT_TRUE(torch::equal(layer(x), integers({0, 1, 1, 2, 3, 3})));
  expect_error<InvalidArgument>([] { Discretization({}); }, "either bin_boundaries or num_bins is needed, got neither");
  expect_error<InvalidArgument>([] { Discretization({.bin_boundaries = {1.0}, .num_bins = 3}); }, "got both");
  expect_error<InvalidArgument>([] { Discretization({.bin_boundaries = {1.0, 0.0}}); }, "ascend, got 1 before 0");
  AdaptedLayer unadapted = Discretization({.num_bins = 3});
  expect_error<FailedPrecondition>([&] { build(unadapted, {1}); }, "it (Discretization): the layer knows no");
  expect_error<InvalidArgument>([&] { unadapted.adapt(torch::full({3}, NAN)); }, "NaN");
  unadapted.adapt(torch::arange(100.0));
  EXPECT_TRUE(
      torch::equal(build(unadapted, {1})(torch::tensor({{20.0}, {50.0}, {90.0}})).flatten(), integers({0, 1, 2})));
}

TEST(IntegerLookupTest, LearnsTokensByTheirNumber) {
  AdaptedLayer lookup = IntegerLookup({.max_tokens = 4, .mask_token = 0, .output_mode = OutputMode::kInt});
  lookup.adapt(Dataset::from_tensor_slices(integers({5, 7, 7, 9, 0, -1, 3, 9, 9}).view({9, 1})).batch(4));
  // Mask, one index for all others, the two tokens that there are most of.
  EXPECT_TRUE(
      torch::equal(build(lookup, {5})(integers({0, 3, 9, 7, 5}).view({1, 5})), integers({0, 1, 2, 3, 1}).view({1, 5})));
  AdaptedLayer weighs = IntegerLookup({.output_mode = OutputMode::kTfIdf});
  weighs.adapt(integers({1, 1, 2, 1, 3, 3}).view({3, 2}));
  // Of three documents one has 2, one 3 (and twice), two have 1.
  const Built weighed = build(weighs, {2});
  EXPECT_EQ(weighed.output, (Shape{4}));
  const double once = std::log(1 + 3 / 2.0), twice = std::log(1 + 3 / 3.0);
  expect_close(weighed(integers({1, 1, 4, 3}).view({2, 2})),
               torch::tensor({{0.0, 2 * twice, 0.0, 0.0}, {(2 * once + twice) / 3, 0.0, once, 0.0}}, torch::kDouble));
}

TEST(IntegerLookupTest, SaysWhatDoesNotFit) {
  expect_error<InvalidArgument>([] { IntegerLookup({.vocabulary = {1, 2, 1}}); }, "the token 1 twice");
  expect_error<InvalidArgument>([] { IntegerLookup({.mask_token = 2, .vocabulary = {1, 2}}); }, "special token 2");
  expect_error<InvalidArgument>(
      [] { IntegerLookup({.vocabulary = {1}, .invert = true, .output_mode = OutputMode::kCount}); },
      "invert needs the output_mode int");
  expect_error<InvalidArgument>([] { IntegerLookup({.max_tokens = 2, .vocabulary = {1, 2}}); }, "at most max_tokens");
  expect_error<InvalidArgument>([] { IntegerLookup({.pad_to_max_tokens = true}); }, "needs max_tokens");
  expect_error<InvalidArgument>([] { IntegerLookup({.vocabulary = {1}, .output_mode = OutputMode::kTfIdf}); },
                                "need each other");
  const Built strict = build(IntegerLookup({.num_oov_indices = 0, .vocabulary = {4, 5}}), {1});
  expect_error<InvalidArgument>([&] { strict(integers({{4, 6}}).view({2, 1})); }, "there is 6");
  expect_error<FailedPrecondition>([] { build(IntegerLookup({}), {1}); }, "knows no vocabulary");
  AdaptedLayer given = IntegerLookup({.vocabulary = {1}});
  expect_error<FailedPrecondition>([&] { given.adapt(integers({1})); }, "was made with a vocabulary");
  AdaptedLayer other(Hashing({.num_bins = 3}));
  expect_error<InvalidArgument>([&] { other.adapt(integers({1})); }, "learns nothing before training");
}

// A file may ask for any number of indices; they take no memory.
TEST(IntegerLookupTest, ManyIndicesTakeNoMemory) {
  const Built many = build(IntegerLookup({.num_oov_indices = int64_t{1} << 50, .vocabulary = {-1, 4}}), {1});
  EXPECT_TRUE(torch::equal(many(integers({4, 9}).view({2, 1})), integers({(int64_t{1} << 50) + 1, 9}).view({2, 1})));
  const Built special =
      build(IntegerLookup({.num_oov_indices = 2, .mask_token = 0, .vocabulary = {0, -1, -1, 4}}), {1});
  EXPECT_TRUE(torch::equal(special(integers({0, 4}).view({2, 1})), integers({0, 3}).view({2, 1})));
}

TEST(HashingTest, KeepsABinForTheMaskedValue) {
  const Tensor x = integers({0, 1, 2, 3, 4, 5, 6, 7}).view({8, 1});
  const Tensor bins = build(Hashing({.num_bins = 3, .mask_value = 5}), {1})(x).flatten();
  for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(bins[i].item<int64_t>() == 0, i == 5) << i;
  expect_error<InvalidArgument>([] { Hashing({.num_bins = 3, .salt = {1, 2, 3}}); }, "one or two numbers, got 3");
  expect_error<InvalidArgument>([&] { hashed_crossing({x}, {.num_bins = 3}); }, "two features or more, got 1");
  expect_error<InvalidArgument>([&] { hashed_crossing({x, x.flatten()}, {.num_bins = 3}); }, "of the same shape");
}

// A model's first layers see what the data are, integers too.
TEST(PreprocessingTest, PipelinesAndModelsAgree) {
  const Tensor ages = torch::tensor({3.0f, 17.0f, 40.0f, 80.0f}).view({4, 1});
  const Layer bins = Discretization({.bin_boundaries = {10.0, 30.0, 60.0}, .output_mode = OutputMode::kOneHot});
  const Dataset data = Dataset::from_tensor_slices(ages, ages).batch(2);
  const auto prepare = [f = apply_layer(bins)](Example e) {
    e.x = f(e.x);
    return e;
  };
  std::vector<Tensor> rows;
  for (const Example& batch : data.map(prepare, {.num_parallel_calls = 2})) rows.push_back(batch.x);
  expect_close(torch::cat(rows), torch::eye(4));
  Sequential model{bins, Dense(2)};
  model.compile({.optimizer = SGD({}), .loss = "mse"});
  model.fit(data, {.verbose = Verbose::kSilent});
  EXPECT_EQ(model.weights().size(), 2U);
  Sequential words{IntegerLookup({.vocabulary = {100, 200}}), Embedding({.input_dim = 3, .output_dim = 2})};
  words.build({2}, torch::kLong);
  EXPECT_EQ(words.predict(integers({100, 5, 200, 100}).view({2, 2})).sizes(), (torch::IntArrayRef{2, 2, 2}));
  expect_error<InvalidArgument>([] { apply_layer(Dense(2))(torch::ones({2, 2})); }, "the layer has parameters");
}

}  // namespace
}  // namespace cohort::preprocessing_test
