// Permute and Rescaling.
#include "cohort/train/layers/rearranging.h"

#include <algorithm>

#include "train/layers/support.h"

namespace cohort {

namespace {

class PermuteModule final : public LayerModule {
 public:
  PermuteModule(std::vector<int64_t> dims, const BuildContext& context) : dims_(std::move(dims)), name_(context.name) {
    dims_.insert(dims_.begin(), 0);
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    if (x.dim() == static_cast<int64_t>(dims_.size())) return x.permute(dims_);
    fail_called(name_, "Permute", x, c10::str(dims_.size() - 1, " dimensions an example"));
  }

 private:
  std::vector<int64_t> dims_;  // the batch's place first
  std::string name_;
};

class PermuteKind final : public LayerKind {
 public:
  explicit PermuteKind(std::vector<int64_t> dims) : dims_(std::move(dims)) {
    std::vector<int64_t> sorted = dims_;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      if (sorted[i] != static_cast<int64_t>(i) + 1) {
        fail_option("Permute", "dims must be the numbers from 1 on in another order, got ", to_text(dims_));
      }
    }
  }
  std::string_view type() const override { return "Permute"; }
  std::string_view base_name() const override { return "permute"; }

  Shape output_shape(const BuildContext& context) const override {
    if (context.input.size() != dims_.size()) {
      fail_input(context.name, "Permute", to_text(context.input) + " an example",
                 c10::str(dims_.size(), " dimensions"));
    }
    Shape output;
    for (const int64_t dim : dims_) output.push_back(context.input[static_cast<std::size_t>(dim - 1)]);
    return output;
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<PermuteModule>(dims_, context);
  }

 private:
  std::vector<int64_t> dims_;
};

class RescalingModule final : public LayerModule {
 public:
  RescalingModule(double scale, double offset, torch::ScalarType dtype)
      : scale_(scale), offset_(offset), dtype_(dtype) {}
  torch::Tensor forward(const torch::Tensor& x) override {
    const torch::Tensor scaled = x.to(dtype_).mul(scale_);
    return offset_ == 0.0 ? scaled : scaled.add(offset_);
  }
  torch::Tensor mask_of(const torch::Tensor& /*x*/, const torch::Tensor& mask) override { return mask; }

 private:
  double scale_;
  double offset_;
  torch::ScalarType dtype_;
};

class RescalingKind final : public LayerKind {
 public:
  RescalingKind(double scale, double offset) : scale_(scale), offset_(offset) {}
  std::string_view type() const override { return "Rescaling"; }
  std::string_view base_name() const override { return "rescaling"; }
  Shape output_shape(const BuildContext& context) const override { return context.input; }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<RescalingModule>(scale_, offset_, context.dtype);
  }

 private:
  double scale_;
  double offset_;
};

}  // namespace

Layer Permute(std::vector<int64_t> dims) {
  return Layer(made_with<PermuteKind>(dims, dims));
}

Layer Rescaling(double scale, double offset) {
  return Layer(made_with<RescalingKind>(std::pair(scale, offset), scale, offset));
}

}  // namespace cohort
