// Losses as Keras 3 gives them: every reduction, with and without sample weights and masks.
#include "cohort/train/losses.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/golden/golden.h"

namespace cohort::testing::losses_test {
namespace {

using nlohmann::json;

constexpr Tolerance kWithin = {.absolute = 1e-6, .relative = 1e-6};

LossReduction reduction_of(const std::string& name) {
  if (name == "sum") return LossReduction::kSum;
  if (name == "mean_with_sample_weight") return LossReduction::kMeanWithSampleWeight;
  if (name == "none") return LossReduction::kNone;
  return LossReduction::kSumOverBatchSize;
}

// Reads options by Keras' names into a struct; one that the struct does not take is a failure.
class OptionReader {
 public:
  explicit OptionReader(json options) : options_(std::move(options)) {}
  ~OptionReader() { EXPECT_TRUE(options_.empty()) << "options that nothing takes: " << options_.dump(); }
  OptionReader(const OptionReader&) = delete;
  OptionReader& operator=(const OptionReader&) = delete;

  template <typename T>
  void read(const char* name, T& field) {
    if (!options_.contains(name)) return;
    if (!options_[name].is_null()) field = options_[name].get<T>();
    options_.erase(name);
  }
  void read(const char* name, std::optional<int64_t>& field) {
    if (!options_.contains(name)) return;
    if (!options_[name].is_null()) field = options_[name].get<int64_t>();
    options_.erase(name);
  }
  void read_axes(const char* name, std::vector<int64_t>& field) {
    if (options_.contains(name) && options_[name].is_number()) options_[name] = json::array({options_[name]});
    read(name, field);
  }
  bool has_list(const char* name) const { return options_.contains(name) && options_.at(name).is_array(); }

 private:
  json options_;
};

template <typename Options>
Loss made(Loss (*make)(const Options&), LossReduction reduction, OptionReader& options) {
  Options given;
  given.reduction = reduction;
  if constexpr (requires { given.from_logits; }) options.read("from_logits", given.from_logits);
  if constexpr (requires { given.label_smoothing; }) options.read("label_smoothing", given.label_smoothing);
  if constexpr (requires { given.ignore_class; }) options.read("ignore_class", given.ignore_class);
  if constexpr (requires { given.class_alphas; }) {
    if (options.has_list("alpha")) options.read("alpha", given.class_alphas);
  }
  if constexpr (requires { given.alpha; }) options.read("alpha", given.alpha);
  if constexpr (requires { given.beta; }) options.read("beta", given.beta);
  if constexpr (requires { given.gamma; }) options.read("gamma", given.gamma);
  if constexpr (requires { given.apply_class_balancing; }) {
    options.read("apply_class_balancing", given.apply_class_balancing);
  }
  if constexpr (requires { given.delta; }) options.read("delta", given.delta);
  if constexpr (requires { given.margin; }) options.read("margin", given.margin);
  if constexpr (requires { given.remove_diagonal; }) options.read("remove_diagonal", given.remove_diagonal);
  if constexpr (requires { given.q; }) options.read("q", given.q);
  if constexpr (requires { given.axis.size(); }) {
    options.read_axes("axis", given.axis);
  } else if constexpr (requires { given.axis; }) {
    options.read("axis", given.axis);
  }
  return make(given);
}

struct Maker {
  const char* name;
  Loss (*make)(LossReduction, OptionReader&);
};

#define COHORT_LOSS(function)                                                                                     \
  Maker {                                                                                                         \
#function, [](LossReduction reduction, OptionReader & options) { return made(function, reduction, options); } \
  }

const std::array kMakers = {
    COHORT_LOSS(SparseCategoricalCrossentropy),
    COHORT_LOSS(CategoricalCrossentropy),
    COHORT_LOSS(CategoricalFocalCrossentropy),
    COHORT_LOSS(BinaryCrossentropy),
    COHORT_LOSS(BinaryFocalCrossentropy),
    COHORT_LOSS(CategoricalGeneralizedCrossEntropy),
    COHORT_LOSS(KLDivergence),
    COHORT_LOSS(Poisson),
    COHORT_LOSS(MeanSquaredError),
    COHORT_LOSS(MeanAbsoluteError),
    COHORT_LOSS(MeanAbsolutePercentageError),
    COHORT_LOSS(MeanSquaredLogarithmicError),
    COHORT_LOSS(Huber),
    COHORT_LOSS(LogCosh),
    COHORT_LOSS(CosineSimilarity),
    COHORT_LOSS(Hinge),
    COHORT_LOSS(SquaredHinge),
    COHORT_LOSS(CategoricalHinge),
    COHORT_LOSS(Dice),
    COHORT_LOSS(Tversky),
    COHORT_LOSS(Circle),
    COHORT_LOSS(CTC),
};

#undef COHORT_LOSS

Loss loss_of(const json& golden, LossReduction reduction) {
  for (const Maker& maker : kMakers) {
    if (golden.at("loss") != maker.name) continue;
    OptionReader options(golden.at("options"));
    return maker.make(reduction, options);
  }
  throw std::invalid_argument("no loss " + golden.at("loss").get<std::string>());
}

torch::Tensor targets(const json& numbers, const std::string& loss) {
  const bool labels =
      loss.starts_with("Sparse") || loss == "Circle" || loss == "CTC" || loss == "CategoricalGeneralizedCrossEntropy";
  return golden_tensor(numbers, labels ? torch::kLong : torch::kDouble);
}

std::string check_case(const json& golden) {
  const std::string name = golden.at("loss");
  const torch::Tensor y = targets(golden.at("y_true"), name), prediction = golden_tensor(golden.at("y_pred"));
  const torch::Tensor weight = golden_tensor(golden.at("weights"));
  std::string differences;
  for (const auto& [reduction, values] : golden.at("values").items()) {
    const Loss loss = loss_of(golden, reduction_of(reduction));
    for (const auto& [which, wanted] : values.items()) {
      const torch::Tensor actual = which == "weighted" ? loss(y, prediction, weight) : loss(y, prediction);
      differences += difference(name + " " + reduction + " " + which, actual, golden_tensor(wanted), kWithin);
    }
  }
  if (!golden.contains("mask")) return differences;
  const Loss loss = loss_of(golden, LossReduction::kSumOverBatchSize);
  const torch::Tensor mask = golden_tensor(golden.at("mask"), torch::kBool);
  differences += difference(name + " masked", loss(y, prediction, {}, mask).item<double>(),
                            golden_number(golden.at("masked")), kWithin);
  differences += difference(name + " masked, weighted", loss(y, prediction, weight, mask).item<double>(),
                            golden_number(golden.at("masked_weighted")), kWithin);
  return differences;
}

TEST(GoldenLosses, Keras3) {
  check_golden("losses_keras3.json", check_case);
}

}  // namespace
}  // namespace cohort::testing::losses_test
