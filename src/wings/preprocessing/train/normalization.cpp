// Normalization. Its statistics are buffers, which files and checkpoints hold, unless they were given.
#include <ATen/Functions.h>

#include <algorithm>
#include <atomic>

#include "cohort/mirrored.h"
#include "cohort/train/layers/preprocessing.h"
#include "train/layers/support.h"
#include "wings/preprocessing/train/adapting.h"
#include "wings/preprocessing/train/normalization.h"

namespace cohort {

namespace {

constexpr std::string_view kNormalization = "Normalization";
constexpr double kLeastDeviation = 1e-7;  // Keras' epsilon()

// Returns the dimensions that keep a mean for each index, in ascending order; `rank` counts the batch's.
std::vector<int64_t> kept_dims(const std::vector<int64_t>& axis, int64_t rank, const std::string& who) {
  std::vector<int64_t> dims;
  for (const int64_t each : axis) dims.push_back(each < 0 ? each + rank : each);
  std::sort(dims.begin(), dims.end());
  const bool twice = std::adjacent_find(dims.begin(), dims.end()) != dims.end();
  if (dims.empty() || (!twice && dims.front() >= 1 && dims.back() < rank)) return dims;
  fail_input(who, kNormalization, c10::str("one of ", rank, " dimensions, the batch's included"),
             c10::str("dimensions that axis = ", to_text(axis), " has, without the batch's; {} is one mean for all"));
}

// Returns the sizes of the kept dimensions. `shape` has the batch's place.
std::vector<int64_t> kept_sizes(const std::vector<int64_t>& dims, torch::IntArrayRef shape) {
  std::vector<int64_t> sizes;
  for (const int64_t dim : dims) sizes.push_back(shape[static_cast<std::size_t>(dim)]);
  return sizes;
}

// Returns a tensor of the kept dimensions, or of their last ones, with ones for the others.
torch::Tensor spread(const torch::Tensor& each, const std::vector<int64_t>& dims, int64_t rank) {
  std::vector<int64_t> sizes(static_cast<std::size_t>(rank), 1);
  for (int64_t i = 0; i < each.dim(); ++i) {
    sizes[static_cast<std::size_t>(dims[dims.size() - 1 - static_cast<std::size_t>(i)])] = each.size(-1 - i);
  }
  return each.reshape(sizes);
}

class NormalizationModule final : public LayerModule, public FirstReplicaBuffers {
 public:
  NormalizationModule(const NormalizationOptions& options, const NormalizationStatistics* learned,
                      const BuildContext& context)
      : name_(context.name),
        rank_(static_cast<int64_t>(context.input.size()) + 1),
        dims_(kept_dims(options.axis, rank_, context.name)),
        invert_(options.invert),
        dtype_(context.dtype),
        known_(learned != nullptr) {
    std::vector<int64_t> shape = {-1};
    shape.insert(shape.end(), context.input.begin(), context.input.end());
    sizes_ = kept_sizes(dims_, shape);
    if (options.mean.defined()) {
      mean_constant_ = std::make_unique<LayerConstant>(spread(options.mean.to(dtype_), dims_, rank_));
      variance_constant_ = std::make_unique<LayerConstant>(spread(options.variance.to(dtype_), dims_, rank_));
      return;
    }
    const bool has_values = known_ && learned->mean.defined();
    // What no one has learned yet is marked by the variance.
    const double unknown = known_ ? 1.0 : std::numeric_limits<double>::quiet_NaN();
    mean_ = register_buffer("mean", has_values ? learned->mean.to(dtype_, /*non_blocking=*/false, /*copy=*/true)
                                               : at::zeros(sizes_, dtype_));
    variance_ =
        register_buffer("variance", has_values ? learned->variance.to(dtype_, /*non_blocking=*/false, /*copy=*/true)
                                               : at::full(sizes_, unknown, dtype_));
    register_buffer("count", at::zeros({}, torch::kLong));
  }

  bool first_replica_counts() const override { return true; }

  torch::Tensor forward(const torch::Tensor& x) override {
    if (x.dim() != rank_ || kept_sizes(dims_, x.sizes()) != sizes_) {
      fail_called(name_, kNormalization, x,
                  c10::str(rank_, " dimensions, of which ", to_text(dims_), " have the sizes ", to_text(sizes_)));
    }
    const bool given = mean_constant_ != nullptr;
    if (!given) require_known();
    const torch::Tensor numbers = x.to(given ? dtype_ : mean_.scalar_type());
    const torch::Tensor mean = given ? mean_constant_->beside(x) : spread(mean_, dims_, rank_);
    const torch::Tensor variance = given ? variance_constant_->beside(x) : spread(variance_, dims_, rank_);
    const torch::Tensor deviation = variance.sqrt().clamp_min(kLeastDeviation);
    return invert_ ? numbers * deviation + mean : (numbers - mean) / deviation;
  }
  torch::Tensor mask_of(const torch::Tensor& /*x*/, const torch::Tensor& mask) override { return mask; }

 private:
  // Looks at the numbers once, because a checkpoint or a file may have brought them.
  void require_known() {
    if (known_) return;
    if (variance_.isnan().any().item<bool>()) fail_unadapted(name_, kNormalization, "mean and variance");
    known_ = true;
  }

  std::string name_;
  int64_t rank_;
  std::vector<int64_t> dims_;
  std::vector<int64_t> sizes_;
  bool invert_;
  torch::ScalarType dtype_;
  std::atomic<bool> known_;
  torch::Tensor mean_;
  torch::Tensor variance_;
  std::unique_ptr<LayerConstant> mean_constant_;
  std::unique_ptr<LayerConstant> variance_constant_;
};

// Means and variances of several batches in one pass, in float64. Source: Chan, Golub and LeVeque, "Updating formulae
// and a pairwise algorithm" (1979).
class NormalizationGathering final : public Gathering {
 public:
  NormalizationGathering(NormalizationOptions options, std::string who)
      : options_(std::move(options)), who_(std::move(who)) {}

  void add(const torch::Tensor& batch) override {
    const std::vector<int64_t> dims = kept_dims(options_.axis, batch.dim(), who_);
    const std::vector<int64_t> sizes = kept_sizes(dims, batch.sizes());
    if (count_ == 0.0) {
      rank_ = batch.dim();
      sizes_ = sizes;
    } else if (batch.dim() != rank_ || sizes != sizes_) {
      fail_adapt(who_, kNormalization, "a batch is ", batch.sizes(), ", wanted ", rank_, " dimensions, of which ",
                 to_text(dims), " have the sizes ", to_text(sizes_), " as in those before");
    }
    std::vector<int64_t> order = dims;
    for (int64_t dim = 0; dim < rank_; ++dim) {
      if (std::find(dims.begin(), dims.end(), dim) == dims.end()) order.push_back(dim);
    }
    std::vector<int64_t> flat = sizes;
    flat.push_back(-1);
    const torch::Tensor values = batch.to(torch::kDouble).permute(order).reshape(flat);
    const torch::Tensor mean = values.mean(-1);
    const torch::Tensor variance = values.var(-1, /*unbiased=*/false);
    const auto count = static_cast<double>(values.size(-1));
    if (count_ == 0.0) {
      mean_ = mean;
      variance_ = variance;
    } else {
      const double share = count / (count_ + count);
      const torch::Tensor apart = mean - mean_;
      mean_ = mean_ + apart * share;
      variance_ = variance_ * (1.0 - share) + variance * share + apart.square() * (share * (1.0 - share));
    }
    count_ += count;
  }

  std::shared_ptr<const LayerKind> learned() const override {
    if (count_ == 0.0) fail_adapt(who_, kNormalization, "there are no data");
    return normalization_kind(options_, NormalizationStatistics{.mean = mean_, .variance = variance_});
  }

 private:
  NormalizationOptions options_;
  std::string who_;
  int64_t rank_ = 0;
  std::vector<int64_t> sizes_;
  double count_ = 0.0;
  torch::Tensor mean_;
  torch::Tensor variance_;
};

void check_options(const NormalizationOptions& options) {
  if (options.mean.defined() != options.variance.defined()) {
    fail_option(kNormalization, "mean and variance are given together, got only ",
                options.mean.defined() ? "mean" : "variance");
  }
  if (!options.mean.defined()) return;
  if (options.mean.sizes() != options.variance.sizes()) {
    fail_option(kNormalization, "mean and variance have the same shape, got ", options.mean.sizes(), " and ",
                options.variance.sizes());
  }
  if (options.mean.dim() > static_cast<int64_t>(options.axis.size())) {
    fail_option(kNormalization, "mean has at most a dimension for each axis, got ", options.mean.dim(),
                " for axis = ", to_text(options.axis));
  }
}

class NormalizationKind final : public AdaptedKind {
 public:
  NormalizationKind(const NormalizationOptions& options, std::optional<NormalizationStatistics> learned)
      : options_(options), learned_(std::move(learned)) {
    check_options(options_);
  }
  std::string_view type() const override { return kNormalization; }
  std::string_view base_name() const override { return "normalization"; }

  Shape output_shape(const BuildContext& context) const override {
    std::vector<int64_t> shape = {-1};
    shape.insert(shape.end(), context.input.begin(), context.input.end());
    const auto rank = static_cast<int64_t>(shape.size());
    // A mean for all needs no dimension, not even the one that the default names.
    const bool one = options_.mean.defined() && options_.mean.dim() == 0;
    const std::vector<int64_t> dims = one ? std::vector<int64_t>() : kept_dims(options_.axis, rank, context.name);
    const std::vector<int64_t> sizes = kept_sizes(dims, shape);
    if (std::find(sizes.begin(), sizes.end(), -1) != sizes.end()) {
      fail_input(context.name, kNormalization, to_text(context.input) + " an example",
                 c10::str("known sizes of axis = ", to_text(options_.axis)));
    }
    if (learned_.has_value() && learned_->mean.defined() && learned_->mean.sizes() != c10::IntArrayRef(sizes)) {
      fail_input(context.name, kNormalization, to_text(context.input) + " an example",
                 c10::str("the sizes ", learned_->mean.sizes(), " of axis = ", to_text(options_.axis),
                          " that the layer was adapted to"));
    }
    for (int64_t i = 0; options_.mean.defined() && i < options_.mean.dim(); ++i) {
      const int64_t size = options_.mean.size(-1 - i), there = sizes[sizes.size() - 1 - static_cast<std::size_t>(i)];
      if (size == 1 || size == there) continue;
      fail_input(context.name, kNormalization, to_text(context.input) + " an example",
                 c10::str("sizes of axis = ", to_text(options_.axis), " that fit mean, ", options_.mean.sizes()));
    }
    return context.input;
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    NormalizationOptions options = options_;
    if (options.mean.defined() && options.mean.dim() == 0) options.axis = {};
    return std::make_shared<NormalizationModule>(options, learned_.has_value() ? &*learned_ : nullptr, context);
  }
  std::unique_ptr<Gathering> gather(const std::string& who) const override {
    if (options_.mean.defined()) fail_given(who, kNormalization, "mean and variance");
    return std::make_unique<NormalizationGathering>(options_, who);
  }

 private:
  NormalizationOptions options_;
  std::optional<NormalizationStatistics> learned_;
};

}  // namespace

std::shared_ptr<const LayerKind> normalization_kind(const NormalizationOptions& options,
                                                    std::optional<NormalizationStatistics> learned) {
  return made_with<NormalizationKind>(options, options, std::move(learned));
}

AdaptedLayer Normalization(const NormalizationOptions& options) {
  return AdaptedLayer(Layer(normalization_kind(options, std::nullopt), options.name));
}

}  // namespace cohort
