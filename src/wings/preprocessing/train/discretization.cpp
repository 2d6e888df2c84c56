// Discretization. The quantiles are Keras' own approximation of them, in the same steps and with the same roundings to
// float32, so that the boundaries are the same. Sorted values on the CPU are read by a pointer.
#include "wings/preprocessing/train/discretization.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "train/layers/support.h"
#include "wings/preprocessing/train/adapting.h"
#include "wings/preprocessing/train/categories.h"

namespace cohort {

namespace {

constexpr std::string_view kDiscretization = "Discretization";

// A summary of sorted values: each stands for as many as its weight says.
struct QuantileSummary {
  std::vector<float> values;
  std::vector<float> weights;
};

// Returns y at x, linear between points whose places ascend, and constant beyond the outer ones (numpy.interp).
double interpolated(double x, const std::vector<double>& places, const std::vector<double>& y) {
  if (x < places.front()) return y.front();
  const auto above = std::upper_bound(places.begin(), places.end(), x);
  const auto i = static_cast<std::size_t>(above - places.begin()) - 1;
  if (i + 1 == places.size() || places[i] == x) return y[i];
  return y[i] + (y[i + 1] - y[i]) / (places[i + 1] - places[i]) * (x - places[i]);
}

// Returns about 1 / epsilon values that stand for the others.
QuantileSummary summarized(const torch::Tensor& batch, double epsilon) {
  const torch::Tensor sorted = std::get<0>(batch.to(torch::kFloat).flatten().contiguous().sort());
  const float* const values = sorted.data_ptr<float>();
  const double step = std::max(static_cast<double>(sorted.numel()) / (1.0 / epsilon), 1.0);
  QuantileSummary summary;
  for (auto i = static_cast<int64_t>(step - 1.0); i < sorted.numel(); i += static_cast<int64_t>(step)) {
    summary.values.push_back(values[i]);
    summary.weights.push_back(static_cast<float>(step));
  }
  return summary;
}

QuantileSummary compressed(QuantileSummary summary, double epsilon) {
  if (static_cast<double>(summary.values.size()) * epsilon < 1.0) return summary;
  std::vector<float> sums = summary.weights;
  std::partial_sum(sums.begin(), sums.end(), sums.begin());
  std::vector<double> places;
  for (const float sum : sums) places.push_back(static_cast<double>(sum / sums.back()));
  const std::vector<double> values(summary.values.begin(), summary.values.end());
  const std::vector<double> weights(sums.begin(), sums.end());
  QuantileSummary result;
  double before = 0.0;
  for (int64_t i = 0; i < static_cast<int64_t>(std::ceil(1.0 / epsilon)); ++i) {
    const double place = epsilon + static_cast<double>(i) * epsilon;
    const double weight = interpolated(place, places, weights);
    result.values.push_back(static_cast<float>(interpolated(place, places, values)));
    result.weights.push_back(static_cast<float>(weight - before));
    before = weight;
  }
  return result;
}

QuantileSummary merged(const QuantileSummary& a, const QuantileSummary& b, double epsilon) {
  std::vector<std::pair<float, float>> all;
  for (const QuantileSummary* const each : {&a, &b}) {
    for (std::size_t i = 0; i < each->values.size(); ++i) all.emplace_back(each->values[i], each->weights[i]);
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& x, const auto& y) { return x.first < y.first; });
  QuantileSummary result;
  for (const auto& [value, weight] : all) {
    result.values.push_back(value);
    result.weights.push_back(weight);
  }
  return compressed(std::move(result), epsilon);
}

class DiscretizationGathering final : public Gathering {
 public:
  DiscretizationGathering(DiscretizationOptions options, std::string who)
      : options_(std::move(options)), who_(std::move(who)) {}

  void add(const torch::Tensor& batch) override {
    if (batch.isnan().any().item<bool>()) fail_adapt(who_, kDiscretization, "the data have NaN, which is in no bin");
    summary_ = merged(summarized(batch, options_.epsilon), summary_, options_.epsilon);
  }
  std::shared_ptr<const LayerKind> learned() const override {
    if (summary_.values.empty()) fail_adapt(who_, kDiscretization, "there are no data");
    const QuantileSummary bins = compressed(summary_, 1.0 / static_cast<double>(*options_.num_bins));
    return discretization_of({.options = options_, .learned = {{bins.values.begin(), bins.values.end() - 1}}})
        .shared_kind();
  }

 private:
  DiscretizationOptions options_;
  std::string who_;
  QuantileSummary summary_;
};

class DiscretizationModule final : public LayerModule {
 public:
  DiscretizationModule(const DiscretizationOptions& options, const std::vector<double>& boundaries,
                       const BuildContext& context)
      : name_(context.name),
        rank_(static_cast<int64_t>(context.input.size()) + 1),
        mode_(options.output_mode),
        depth_(static_cast<int64_t>(boundaries.size()) + 1),
        dtype_(context.dtype),
        boundaries_(at::tensor(boundaries, torch::kFloat).to(dtype_)) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    if (x.dim() != rank_) fail_called(name_, kDiscretization, x, c10::str(rank_, " dimensions"));
    const torch::Tensor bins = at::bucketize(x.to(dtype_), boundaries_.beside(x), /*out_int32=*/false, /*right=*/true);
    return encoded(bins, mode_, depth_, dtype_);
  }

 private:
  std::string name_;
  int64_t rank_;
  OutputMode mode_;
  int64_t depth_;
  torch::ScalarType dtype_;
  LayerConstant boundaries_;
};

void check_options(const DiscretizationParts& parts) {
  const DiscretizationOptions& options = parts.options;
  if (options.num_bins.has_value() != options.bin_boundaries.empty()) {
    fail_option(kDiscretization, "either bin_boundaries or num_bins is needed, got ",
                options.bin_boundaries.empty() ? "neither" : "both");
  }
  if (options.num_bins.has_value()) check_positive(kDiscretization, "num_bins", *options.num_bins);
  if (!(options.epsilon > 0.0 && options.epsilon < 1.0)) {
    fail_option(kDiscretization, "epsilon must be between 0 and 1, got ", options.epsilon);
  }
  check_mode(kDiscretization, options.output_mode,
             {OutputMode::kInt, OutputMode::kOneHot, OutputMode::kMultiHot, OutputMode::kCount});
  const std::vector<double>& boundaries = parts.learned.has_value() ? *parts.learned : options.bin_boundaries;
  const auto descends = [](double a, double b) { return !(a <= b); };
  const auto wrong = std::adjacent_find(boundaries.begin(), boundaries.end(), descends);
  if (wrong != boundaries.end()) {
    fail_option(kDiscretization, "bin_boundaries ascend, got ", *wrong, " before ", *(wrong + 1));
  }
}

class DiscretizationKind final : public AdaptedKind {
 public:
  explicit DiscretizationKind(DiscretizationParts parts) : parts_(std::move(parts)) { check_options(parts_); }
  std::string_view type() const override { return kDiscretization; }
  std::string_view base_name() const override { return "discretization"; }
  Shape output_shape(const BuildContext& context) const override {
    const auto depth = static_cast<int64_t>(boundaries(context.name).size()) + 1;
    return encoded_shape(context, type(), parts_.options.output_mode, depth);
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<DiscretizationModule>(parts_.options, boundaries(context.name), context);
  }
  std::unique_ptr<Gathering> gather(const std::string& who) const override {
    if (!parts_.options.num_bins.has_value()) fail_given(who, kDiscretization, "bin_boundaries");
    return std::make_unique<DiscretizationGathering>(parts_.options, who);
  }

 private:
  const std::vector<double>& boundaries(const std::string& who) const {
    if (parts_.learned.has_value()) return *parts_.learned;
    if (parts_.options.bin_boundaries.empty()) fail_unadapted(who, kDiscretization, "bin_boundaries");
    return parts_.options.bin_boundaries;
  }

  DiscretizationParts parts_;
};

}  // namespace

AdaptedLayer discretization_of(const DiscretizationParts& parts) {
  return AdaptedLayer(Layer(made_with<DiscretizationKind>(parts, parts), parts.options.name));
}

AdaptedLayer Discretization(const DiscretizationOptions& options) {
  return discretization_of({.options = options});
}

}  // namespace cohort
