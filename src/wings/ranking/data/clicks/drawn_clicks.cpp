// Clicks without a file. Every value of a category and every whole number has a hidden number; the chance of a click
// grows with their sum, and with products of the hidden numbers of some pairs of categories, which no sum foretells.
#include <ATen/Functions.h>

#include <array>
#include <cmath>

#include "base/fail.h"
#include "data/random.h"
#include "wings/ranking/data/clicks/clicks.h"

namespace cohort::datasets {

namespace {

constexpr int64_t kValues = 200;   // of a category
constexpr int64_t kPairs = 6;      // of categories that count together: 0 and 1, 2 and 3, ...
constexpr double kSums = 0.25;     // the weight of a hidden number in the sum
constexpr double kProducts = 0.9;  // that of a product
constexpr double kRest = -1.2;     // clicks are the rarer case

double normal(Random& random) {
  constexpr double kTurn = 6.283185307179586;
  return std::sqrt(-2.0 * std::log(1.0 - random.uniform())) * std::cos(kTurn * random.uniform());
}

struct ClickRule {
  std::vector<double> values;  // [category * kValues + value]
  std::array<double, kDenseFeatures> slopes{};

  // One rule for all seeds: a model that was trained on one can be evaluated on the clicks of another.
  ClickRule() {
    Random random(/*seed=*/1, /*stream=*/1'000);
    for (int64_t i = 0; i < kCategories * kValues; ++i) values.push_back(normal(random));
    for (double& slope : slopes) slope = normal(random);
  }
  double of(int64_t category, int64_t value) const {
    return values[static_cast<std::size_t>(category * kValues + value)];
  }
};

}  // namespace

Clicks draw_clicks(int64_t count, uint64_t seed, uint64_t part) {
  const ClickRule rule;
  Random random(seed, part);
  Clicks clicks{.dense = at::empty({count, kDenseFeatures}),
                .categories = at::empty({count, kCategories}, torch::kLong),
                .labels = at::empty({count}),
                .chances = at::empty({count})};
  auto dense = clicks.dense.accessor<float, 2>();
  auto categories = clicks.categories.accessor<int64_t, 2>();
  for (int64_t i = 0; i < count; ++i) {
    double score = kRest;
    for (int64_t f = 0; f < kDenseFeatures; ++f) {
      const double size = normal(random);
      dense[i][f] = static_cast<float>(std::floor(std::exp(1.5 + size)));
      score += kSums * rule.slopes[static_cast<std::size_t>(f)] * size;
    }
    std::array<double, kCategories> hidden{};
    for (int64_t c = 0; c < kCategories; ++c) {
      const double u = random.uniform();  // a few values are frequent
      categories[i][c] = static_cast<int64_t>(u * u * u * static_cast<double>(kValues));
      hidden[static_cast<std::size_t>(c)] = rule.of(c, categories[i][c]);
      score += kSums * hidden[static_cast<std::size_t>(c)];
    }
    for (std::size_t p = 0; p < kPairs; ++p) score += kProducts * hidden[2 * p] * hidden[2 * p + 1];
    const double chance = 1.0 / (1.0 + std::exp(-score));
    clicks.chances.accessor<float, 1>()[i] = static_cast<float>(chance);
    clicks.labels.accessor<float, 1>()[i] = random.uniform() < chance ? 1.0F : 0.0F;
  }
  return clicks;
}

Dataset examples_of(const Clicks& clicks) {
  return Dataset::from_tensor_slices(
      {.y = clicks.labels, .inputs = {{"dense_features", clicks.dense}, {"sparse_features", clicks.categories}}});
}

TrainTest drawn_clicks(const DrawnClicksOptions& options) {
  const auto draw = [&](const char* name, int64_t count, uint64_t part) {
    if (count < 1) fail<InvalidArgument>("[data] drawn_clicks: ", name, " is ", count, ", wanted 1 or more");
    return examples_of(draw_clicks(count, options.seed, part));
  };
  return {.train = draw("train_size", options.train_size, 0), .test = draw("test_size", options.test_size, 1)};
}

}  // namespace cohort::datasets
