#include <ATen/Functions.h>

#include "cohort/train/layers/layer_normalization.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

constexpr std::string_view kGroupNormalization = "GroupNormalization";

class GroupNormModule final : public LayerModule {
 public:
  GroupNormModule(const GroupNormalizationOptions& options, int64_t groups, const BuildContext& context)
      : name_(context.name),
        groups_(groups),
        channels_(context.input[0]),
        rank_(static_cast<int64_t>(context.input.size()) + 1),
        epsilon_(options.epsilon) {
    if (options.scale) weight_ = register_parameter("weight", torch::ones({channels_}, context.dtype));
    if (options.center) bias_ = register_parameter("bias", torch::zeros({channels_}, context.dtype));
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    check_input(name_, kGroupNormalization, x, rank_, 1, channels_);
    if (x.numel() > 0) return at::group_norm(x, groups_, weight_, bias_, epsilon_);
    return empty_from({x, weight_, bias_}, x.sizes());
  }

  torch::Tensor mask_of(const torch::Tensor& /*x*/, const torch::Tensor& mask) override { return mask; }

 private:
  std::string name_;
  int64_t groups_;
  int64_t channels_;
  int64_t rank_;
  double epsilon_;
  torch::Tensor weight_, bias_;
};

class GroupNormKind final : public LayerKind {
 public:
  explicit GroupNormKind(GroupNormalizationOptions options) : options_(std::move(options)) {
    if (options_.groups <= 0 && options_.groups != -1) {
      fail_option(kGroupNormalization, "groups must be positive, or -1, got ", options_.groups);
    }
    if (!(options_.epsilon > 0.0)) fail_option(kGroupNormalization, "epsilon must be positive, got ", options_.epsilon);
  }
  std::string_view type() const override { return kGroupNormalization; }
  std::string_view base_name() const override { return "group_normalization"; }

  Shape output_shape(const BuildContext& context) const override {
    const bool known = !context.input.empty() && context.input[0] > 0;
    if (known && context.input[0] % groups(context) == 0) return context.input;
    fail_input(context.name, kGroupNormalization, to_text(context.input) + " an example",
               c10::str("a number of channels that is known and that ", options_.groups, " groups divide"));
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<GroupNormModule>(options_, groups(context), context);
  }

 private:
  int64_t groups(const BuildContext& context) const {
    return options_.groups == -1 ? context.input[0] : options_.groups;
  }

  GroupNormalizationOptions options_;
};

}  // namespace

Layer GroupNormalization(const GroupNormalizationOptions& options) {
  return make_layer<GroupNormKind>(options, options.trainable);
}

}  // namespace cohort
