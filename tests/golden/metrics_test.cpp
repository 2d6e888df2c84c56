// Metrics as Keras 3 gives them, after each of several updates.
#include "cohort/train/metrics.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/golden/golden.h"

namespace cohort::testing::metrics_test {
namespace {

using nlohmann::json;

constexpr Tolerance kWithin = {.absolute = 1e-5, .relative = 1e-5};

// Takes options by Keras' names; what is left over at the end is a failure.
class Taken {
 public:
  explicit Taken(json options) : options_(std::move(options)) {}

  template <typename T>
  void take(const char* name, T& field) {
    if (const json value = remove(name); !value.is_null()) field = value.get<T>();
  }
  template <typename T>
  void take(const char* name, std::optional<T>& field) {
    if (const json value = remove(name); !value.is_null()) field = value.get<T>();
  }
  // A number or a list of them.
  void take_list(const char* name, std::vector<double>& field) {
    const json value = remove(name);
    if (value.is_number()) field = {value.get<double>()};
    if (value.is_array()) field = value.get<std::vector<double>>();
  }
  // One of several words, in the order of the enumerators.
  template <typename Enum>
  void take_word(const char* name, std::vector<std::string> words, Enum& field) {
    const json value = remove(name);
    if (value.is_null()) return;
    const auto found = std::find(words.begin(), words.end(), value.get<std::string>());
    if (found == words.end()) throw std::invalid_argument(value.dump() + " is no " + name);
    field = static_cast<Enum>(found - words.begin());
  }
  const json& left() const { return options_; }

 private:
  json remove(const char* name) {
    json value;
    if (options_.contains(name)) value = options_.at(name);
    if (options_.contains(name)) options_.erase(name);
    return value;
  }

  json options_;
};

// The fields that each have the same name in several structs.
template <typename Options>
void take_common(Taken& from, Options& options) {
  if constexpr (requires { options.thresholds; }) from.take_list("thresholds", options.thresholds);
  if constexpr (requires { options.threshold; }) from.take("threshold", options.threshold);
  if constexpr (requires { options.top_k; }) from.take("top_k", options.top_k);
  if constexpr (requires { options.k; }) from.take("k", options.k);
  if constexpr (requires { options.class_id; }) from.take("class_id", options.class_id);
  if constexpr (requires { options.num_thresholds; }) from.take("num_thresholds", options.num_thresholds);
  if constexpr (requires { options.from_logits; }) from.take("from_logits", options.from_logits);
  if constexpr (requires { options.label_smoothing; }) from.take("label_smoothing", options.label_smoothing);
  if constexpr (requires { options.multi_label; }) from.take("multi_label", options.multi_label);
  if constexpr (requires { options.num_labels; }) from.take("num_labels", options.num_labels);
  if constexpr (requires { options.label_weights; }) from.take_list("label_weights", options.label_weights);
  if constexpr (requires { options.axis; }) from.take("axis", options.axis);
}

template <typename Options>
void take_particular(Taken& from, Options& options) {
  if constexpr (requires { options.beta; }) from.take("beta", options.beta);
  if constexpr (requires { options.recall; }) from.take("recall", options.recall);
  if constexpr (requires { options.precision; }) from.take("precision", options.precision);
  if constexpr (requires { options.specificity; }) from.take("specificity", options.specificity);
  if constexpr (requires { options.sensitivity; }) from.take("sensitivity", options.sensitivity);
  if constexpr (requires { options.num_classes; }) from.take("num_classes", options.num_classes);
  if constexpr (requires { options.target_class_ids; }) from.take("target_class_ids", options.target_class_ids);
  if constexpr (requires { options.ignore_class; }) from.take("ignore_class", options.ignore_class);
  if constexpr (requires { options.sparse_y_true; }) from.take("sparse_y_true", options.sparse_y_true);
  if constexpr (requires { options.sparse_y_pred; }) from.take("sparse_y_pred", options.sparse_y_pred);
  if constexpr (requires { options.num_regressors; }) from.take("num_regressors", options.num_regressors);
  if constexpr (requires { options.curve; }) from.take_word("curve", {"ROC", "PR"}, options.curve);
  if constexpr (requires { options.summation; }) {
    from.take_word("summation_method", {"interpolation", "minoring", "majoring"}, options.summation);
  }
  if constexpr (requires { options.average; }) {
    from.take_word("average", {"none", "micro", "macro", "weighted"}, options.average);
  }
  if constexpr (requires { options.class_aggregation; }) {
    from.take_word("class_aggregation", {"none", "uniform_average", "variance_weighted_average"},
                   options.class_aggregation);
  }
}

template <typename Result, typename Options>
Metric made(Result (*make)(const Options&), Taken& from) {
  Options options;
  take_common(from, options);
  take_particular(from, options);
  return Metric(make(options));
}

struct Maker {
  const char* name;
  Metric (*make)(Taken&);
};

#define COHORT_METRIC(function)                                        \
  Maker {                                                              \
#function, [](Taken & options) { return made(function, options); } \
  }

const std::array kMakers = {
    Maker{"Accuracy", [](Taken& options) { return made(EqualityAccuracy, options); }},
    COHORT_METRIC(AUC),
    COHORT_METRIC(BinaryAccuracy),
    COHORT_METRIC(BinaryCrossentropy),
    COHORT_METRIC(BinaryIoU),
    COHORT_METRIC(CategoricalAccuracy),
    COHORT_METRIC(CategoricalCrossentropy),
    COHORT_METRIC(CategoricalHinge),
    COHORT_METRIC(ConcordanceCorrelation),
    COHORT_METRIC(CosineSimilarity),
    COHORT_METRIC(F1Score),
    COHORT_METRIC(FBetaScore),
    COHORT_METRIC(FalseNegatives),
    COHORT_METRIC(FalsePositives),
    COHORT_METRIC(Hinge),
    COHORT_METRIC(IoU),
    COHORT_METRIC(KLDivergence),
    COHORT_METRIC(LogCoshError),
    COHORT_METRIC(Mean),
    COHORT_METRIC(MeanAbsoluteError),
    COHORT_METRIC(MeanAbsolutePercentageError),
    COHORT_METRIC(MeanIoU),
    COHORT_METRIC(MeanSquaredError),
    COHORT_METRIC(MeanSquaredLogarithmicError),
    COHORT_METRIC(OneHotIoU),
    COHORT_METRIC(OneHotMeanIoU),
    COHORT_METRIC(PearsonCorrelation),
    COHORT_METRIC(Poisson),
    COHORT_METRIC(Precision),
    COHORT_METRIC(PrecisionAtRecall),
    COHORT_METRIC(R2Score),
    COHORT_METRIC(Recall),
    COHORT_METRIC(RecallAtPrecision),
    COHORT_METRIC(RootMeanSquaredError),
    COHORT_METRIC(SensitivityAtSpecificity),
    COHORT_METRIC(SparseCategoricalAccuracy),
    COHORT_METRIC(SparseCategoricalCrossentropy),
    COHORT_METRIC(SparseTopKCategoricalAccuracy),
    COHORT_METRIC(SpecificityAtSensitivity),
    COHORT_METRIC(SquaredHinge),
    COHORT_METRIC(Sum),
    COHORT_METRIC(TopKCategoricalAccuracy),
    COHORT_METRIC(TrueNegatives),
    COHORT_METRIC(TruePositives),
};

#undef COHORT_METRIC

Metric metric_of(const json& golden) {
  for (const Maker& maker : kMakers) {
    if (golden.at("metric") != maker.name) continue;
    Taken options(golden.at("options"));
    const Metric metric = maker.make(options);
    if (options.left().empty()) return metric;
    throw std::invalid_argument("nothing takes the options " + options.left().dump());
  }
  throw std::invalid_argument("no metric " + golden.at("metric").get<std::string>());
}

// k may be more than there are classes, whose ids are integers; all other numbers are float32, as Keras had them.
torch::Tensor targets(const json& numbers, const std::string& metric) {
  return golden_tensor(numbers, metric.starts_with("Sparse") ? torch::kLong : torch::kFloat);
}

std::string check_case(const json& golden) {
  const std::string name = golden.at("metric");
  const Metric metric = metric_of(golden);
  MetricState state = metric.make_state();
  std::string differences;
  for (std::size_t i = 0; i < golden.at("updates").size(); ++i) {
    const json& update = golden.at("updates")[i];
    const torch::Tensor weight = update.contains("weights") ? golden_tensor(update.at("weights")) : torch::Tensor();
    metric.update(state, targets(update.at("y_true"), name), golden_tensor(update.at("y_pred"), torch::kFloat), weight);
    const torch::Tensor wanted = golden_tensor(golden.at("results")[i]);
    const torch::Tensor actual = torch::tensor(metric.results(state), torch::kDouble);
    const std::string what = name + " after update " + std::to_string(i);
    differences += difference(what, actual.view_as(wanted), wanted, kWithin);
    if (wanted.dim() == 0) differences += difference(what, metric.result(state), wanted.item<double>(), kWithin);
  }
  return differences;
}

// Cases with float64 numbers, whose updates lie in three lists.
std::string check_float64_case(const json& golden) {
  const std::string name = golden.at("metric");
  const Metric metric = metric_of(golden);
  MetricState state = metric.make_state();
  std::string differences;
  for (std::size_t i = 0; i < golden.at("y").size(); ++i) {
    const json& weight = golden.at("weight")[i];
    metric.update(state, golden_tensor(golden.at("y")[i], name.starts_with("Sparse") ? torch::kLong : torch::kDouble),
                  golden_tensor(golden.at("prediction")[i]),
                  weight.is_null() ? torch::Tensor() : golden_tensor(weight));
    const torch::Tensor wanted = golden_tensor(golden.at("results")[i]);
    differences += difference(c10::str(name, " ", golden.at("options").dump(), " after update ", i),
                              torch::tensor(metric.results(state), torch::kDouble).view_as(wanted), wanted,
                              {.absolute = 1e-6, .relative = 1e-6});
  }
  return differences;
}

TEST(GoldenMetrics, Keras3InFloat64) {
  check_golden("metrics_keras3_more.json", check_float64_case, {{26, "is its bound exactly"}});
}

TEST(GoldenMetrics, Keras3) {
  check_golden("metrics_keras3.json", check_case);
}

}  // namespace
}  // namespace cohort::testing::metrics_test
