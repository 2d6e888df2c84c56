// Chapter 3 of docs/tutorial: data of one's own, from a text file to batches, and a position in them.
// Usage: tutorial_own_data
#include <torch/torch.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>

#include "cohort/cohort.h"

using namespace cohort;
namespace fs = std::filesystem;

// A file such as one has: a point a line, "x,y,arm", of a spiral with three arms.
void write_points(const fs::path& file) {
  std::ofstream out(file);
  const auto numbers = torch::rand({1'800, 2}, torch::kFloat64);
  for (int64_t i = 0; i < numbers.size(0); ++i) {
    const auto arm = i % 3;
    const double radius = numbers[i][0].item<double>();
    const double angle = 4.0 * radius + 2.0944 * static_cast<double>(arm) + 0.4 * numbers[i][1].item<double>();
    out << radius * std::cos(angle) << ',' << radius * std::sin(angle) << ',' << arm << '\n';
  }
}

// Opens the file anew in every pass and reads a line at a time.
Dataset read_points(const fs::path& file) {
  return Dataset::from_generator([file]() -> Dataset::Generator {
    auto in = std::make_shared<std::ifstream>(file);
    return [in]() -> std::optional<Example> {
      float x = 0.0F, y = 0.0F;
      int64_t arm = 0;
      char comma = ',';
      if (!(*in >> x >> comma >> y >> comma >> arm)) return std::nullopt;  // the end of the pass
      return Example{.x = torch::tensor({x, y}), .y = torch::tensor(arm)};
    };
  });
}

// The network is also told how far out a point is.
Example with_radius(Example point) {
  point.x = torch::cat({point.x, point.x.norm().reshape(1)});
  return point;
}

int main() {
  torch::manual_seed(1);
  const fs::path file = fs::temp_directory_path() / "cohort_tutorial_points.csv";
  write_points(file);

  const Dataset points = read_points(file).map(with_radius).cache();  // the file is read once
  const Dataset test = points.take(300).batch(100);
  const Dataset train = points.skip(300).shuffle(1'500).batch(64).prefetch();

  // Every pass over the data has another order.
  for (int pass = 0; pass < 2; ++pass) {
    for (const Example& batch : train) {
      std::cout << "pass " << pass << ": x " << batch.x.sizes() << ", arms";
      for (int64_t i = 0; i < 8; ++i) std::cout << ' ' << batch.y[i].item<int64_t>();
      std::cout << " ...\n";
      break;
    }
  }

  // A position can be saved, and another iterator goes on from there.
  Iterator reading = train.iterator();
  reading.next();
  const std::string position = reading.save();
  const auto expected = reading.next();
  Iterator resumed = train.iterator();
  resumed.restore(position);
  std::cout << "the batch behind a saved position is the same: "
            << (torch::equal(resumed.next()->x, expected->x) ? "yes" : "no") << "\n";

  Sequential model{Dense(64, Activation::kRelu), Dense(64, Activation::kRelu), Dense(3)};
  model.compile({.optimizer = Adam({.learning_rate = 1e-2}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy({.name = "accuracy"})}});
  model.fit(train, {.epochs = 20, .verbose = Verbose::kSilent});
  const Logs result = model.evaluate(test, {.verbose = Verbose::kSilent});
  std::cout << "accuracy on the first 300 lines, which were left out: " << result["accuracy"] << "\n";
  fs::remove(file);
}
