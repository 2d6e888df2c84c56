// Hashing and hashed_crossing(). Integers are read and bins written by a pointer into tensors on the CPU, because
// hashes of digits are no operation of tensors.
#include <ATen/Functions.h>

#include "train/layers/support.h"
#include "wings/preprocessing/train/categories.h"
#include "wings/preprocessing/train/farm_hash.h"
#include "wings/preprocessing/train/hashed.h"

namespace cohort {

torch::Tensor hashed(const torch::Tensor& integers, const std::function<int64_t(int64_t)>& bin) {
  const torch::Tensor own = integers.cpu().contiguous();
  const torch::Tensor bins = at::empty(own.sizes(), torch::kLong);
  const int64_t* const from = own.data_ptr<int64_t>();
  int64_t* const to = bins.data_ptr<int64_t>();
  for (int64_t i = 0; i < own.numel(); ++i) to[i] = bin(from[i]);
  return bins.to(integers.device());
}

namespace {

constexpr std::string_view kHashing = "Hashing";
constexpr std::string_view kHashedCrossing = "HashedCrossing";

class HashingModule final : public LayerModule {
 public:
  HashingModule(const HashingOptions& options, const BuildContext& context)
      : name_(context.name),
        rank_(static_cast<int64_t>(context.input.size()) + 1),
        options_(options),
        hash_(kHashing, options.salt),
        dtype_(context.dtype) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    if (x.dim() != rank_) fail_called(name_, kHashing, x, c10::str(rank_, " dimensions"));
    // Bin 0 is that of the masked value alone, if there is another one.
    const bool masks = options_.mask_value.has_value() && options_.num_bins > 1;
    const torch::Tensor bins = hashed(x.to(torch::kLong), [&](int64_t token) -> int64_t {
      if (!masks) return hash_.bin(token, options_.num_bins);
      return token == *options_.mask_value ? 0 : 1 + hash_.bin(token, options_.num_bins - 1);
    });
    return encoded(bins, options_.output_mode, options_.num_bins, dtype_);
  }

 private:
  std::string name_;
  int64_t rank_;
  HashingOptions options_;
  TokenHash hash_;
  torch::ScalarType dtype_;
};

class HashingKind final : public LayerKind {
 public:
  explicit HashingKind(HashingOptions options) : options_(std::move(options)) {
    check_positive(kHashing, "num_bins", options_.num_bins);
    check_mode(kHashing, options_.output_mode,
               {OutputMode::kInt, OutputMode::kOneHot, OutputMode::kMultiHot, OutputMode::kCount});
    static_cast<void>(TokenHash(kHashing, options_.salt));
  }
  std::string_view type() const override { return kHashing; }
  std::string_view base_name() const override { return "hashing"; }
  Shape output_shape(const BuildContext& context) const override {
    return encoded_shape(context, type(), options_.output_mode, options_.num_bins);
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<HashingModule>(options_, context);
  }

 private:
  HashingOptions options_;
};

}  // namespace

Layer Hashing(const HashingOptions& options) {
  return make_layer<HashingKind>(options);
}

torch::Tensor hashed_crossing(const std::vector<torch::Tensor>& features, const HashedCrossingOptions& options) {
  check_positive(kHashedCrossing, "num_bins", options.num_bins);
  check_mode(kHashedCrossing, options.output_mode, {OutputMode::kInt, OutputMode::kOneHot});
  if (features.size() < 2) fail_option(kHashedCrossing, "there are two features or more, got ", features.size());
  for (const torch::Tensor& each : features) {
    const bool integers = each.defined() && at::isIntegralType(each.scalar_type(), /*includeBool=*/false);
    const bool fits = integers && each.sizes() == features.front().sizes() && each.dim() >= 1 && each.dim() <= 2;
    if (!fits || (each.dim() == 2 && each.size(1) != 1)) {
      fail_called("hashed_crossing", kHashedCrossing, each, "integers of [batch] or [batch, 1], all of the same shape");
    }
  }
  // The fingerprint that TensorFlow begins with.
  constexpr uint64_t kFirst = 0xDECAFCAFFEULL;
  torch::Tensor joined = at::full_like(features.front(), static_cast<int64_t>(kFirst), torch::kLong);
  for (const torch::Tensor& each : features) {
    const torch::Tensor other = each.to(torch::kLong).cpu().contiguous();
    const int64_t* next = other.data_ptr<int64_t>();
    joined = hashed(joined, [&](int64_t before) {
      return static_cast<int64_t>(joined_fingerprint(static_cast<uint64_t>(before), static_cast<uint64_t>(*next++)));
    });
  }
  const auto bins = static_cast<uint64_t>(options.num_bins);
  const torch::Tensor all =
      hashed(joined, [&](int64_t each) { return static_cast<int64_t>(static_cast<uint64_t>(each) % bins); });
  return encoded(all, options.output_mode, options.num_bins, torch::kFloat);
}

}  // namespace cohort
