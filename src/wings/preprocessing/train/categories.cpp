// CategoryEncoding, and the forms of categories.
#include "wings/preprocessing/train/categories.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "train/layers/support.h"

namespace cohort {

void check_mode(std::string_view type, OutputMode mode, std::initializer_list<OutputMode> modes) {
  if (std::find(modes.begin(), modes.end(), mode) != modes.end()) return;
  std::string wanted;
  for (const OutputMode each : modes) {
    wanted.append(wanted.empty() ? "" : ", ").append(option_names(each)[static_cast<std::size_t>(each)]);
  }
  fail_option(type, "output_mode is ", option_names(mode)[static_cast<std::size_t>(mode)], ", wanted one of ", wanted);
}

void check_positive(std::string_view type, std::string_view option, int64_t number) {
  if (number <= 0) fail_option(type, option, " must be positive, got ", number);
}

Shape encoded_shape(const BuildContext& context, std::string_view type, OutputMode mode, int64_t depth) {
  Shape shape = context.input;
  if (mode == OutputMode::kInt) return shape;
  if (mode != OutputMode::kOneHot) {
    if (shape.size() == 1) return {depth};
    fail_input(context.name, type, to_text(shape) + " an example",
               c10::str("[samples] for the output_mode ", option_names(mode)[static_cast<std::size_t>(mode)]));
  }
  if (!shape.empty() && shape.back() < 0) {
    fail_input(context.name, type, to_text(shape) + " an example", "a last dimension of known size for one_hot");
  }
  if (!shape.empty() && shape.back() == 1) shape.pop_back();
  shape.push_back(depth);
  return shape;
}

torch::Tensor encoded(const torch::Tensor& categories, OutputMode mode, int64_t depth, torch::ScalarType dtype,
                      const torch::Tensor& weights) {
  if (mode == OutputMode::kInt) return categories;
  const bool takes_last = categories.dim() > 1 && categories.size(-1) == 1;
  const torch::Tensor rows = mode == OutputMode::kOneHot && !takes_last ? categories.unsqueeze(-1) : categories;
  torch::Tensor ones = rows.ge(0).logical_and(rows.lt(depth)).to(dtype);
  if (weights.defined()) ones = ones * weights;
  std::vector<int64_t> sizes = rows.sizes().vec();
  sizes.back() = depth;
  const torch::Tensor sums = at::zeros(sizes, ones.options()).scatter_add(-1, rows.clamp(0, depth - 1), ones);
  return mode == OutputMode::kMultiHot ? sums.clamp_max(1) : sums;
}

namespace {

constexpr std::string_view kCategoryEncoding = "CategoryEncoding";

void check_options(const CategoryEncodingOptions& options) {
  check_positive(kCategoryEncoding, "num_tokens", options.num_tokens);
  check_mode(kCategoryEncoding, options.output_mode, {OutputMode::kOneHot, OutputMode::kMultiHot, OutputMode::kCount});
}

class CategoryEncodingModule final : public LayerModule {
 public:
  CategoryEncodingModule(const CategoryEncodingOptions& options, const BuildContext& context)
      : name_(context.name),
        rank_(static_cast<int64_t>(context.input.size()) + 1),
        depth_(options.num_tokens),
        mode_(options.output_mode),
        dtype_(context.dtype) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    if (x.dim() != rank_) fail_called(name_, kCategoryEncoding, x, c10::str(rank_, " dimensions"));
    return encoded(x.to(torch::kLong), mode_, depth_, dtype_);
  }

 private:
  std::string name_;
  int64_t rank_;
  int64_t depth_;
  OutputMode mode_;
  torch::ScalarType dtype_;
};

class CategoryEncodingKind final : public LayerKind {
 public:
  explicit CategoryEncodingKind(CategoryEncodingOptions options) : options_(std::move(options)) {
    check_options(options_);
  }
  std::string_view type() const override { return kCategoryEncoding; }
  std::string_view base_name() const override { return "category_encoding"; }
  Shape output_shape(const BuildContext& context) const override {
    return encoded_shape(context, type(), options_.output_mode, options_.num_tokens);
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<CategoryEncodingModule>(options_, context);
  }

 private:
  CategoryEncodingOptions options_;
};

}  // namespace

Layer CategoryEncoding(const CategoryEncodingOptions& options) {
  return make_layer<CategoryEncodingKind>(options);
}

torch::Tensor encode_categories(const torch::Tensor& x, const CategoryEncodingOptions& options,
                                const torch::Tensor& count_weights) {
  check_options(options);
  if (count_weights.defined() && options.output_mode != OutputMode::kCount) {
    fail_option(kCategoryEncoding, "count_weights are for the output_mode count only");
  }
  const bool any = options.output_mode == OutputMode::kOneHot;
  if (!x.defined() || x.dim() == 0 || (!any && x.dim() > 2)) {
    fail_called("encode_categories", kCategoryEncoding, x, any ? "[batch, ...]" : "[batch, samples] or [samples]");
  }
  if (count_weights.defined() && count_weights.sizes() != x.sizes()) {
    fail_called("encode_categories", kCategoryEncoding, x,
                c10::str("the shape of count_weights, ", count_weights.sizes()));
  }
  const bool floating = count_weights.defined() && count_weights.is_floating_point();
  const torch::ScalarType dtype = floating ? count_weights.scalar_type() : torch::kFloat;
  return encoded(x.to(torch::kLong), options.output_mode, options.num_tokens, dtype, count_weights);
}

}  // namespace cohort
