#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include "cohort/parallel/mesh_strategy.h"
#include "cohort/replica.h"
#include "cohort/train/layers.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

constexpr std::string_view kEmbedding = "Embedding";

class EmbeddingModule final : public LayerModule, public DividedModule {
 public:
  EmbeddingModule(const EmbeddingOptions& options, const BuildContext& context)
      : name_(context.name),
        rows_(options.input_dim),
        mask_zero_(options.mask_zero),
        regularizer_(options.embeddings_regularizer) {
    weight_ = register_parameter("weight", torch::empty({options.input_dim, options.output_dim}, context.dtype));
    options.embeddings_initializer.fill(weight_, static_cast<double>(options.input_dim),
                                        static_cast<double>(options.output_dim));
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    if (!at::isIntegralType(x.scalar_type(), /*includeBool=*/false)) fail_called(name_, kEmbedding, x, "integers");
    const bool indexes = x.scalar_type() == torch::kLong || x.scalar_type() == torch::kInt;
    try {
      return look_up(indexes ? x : x.to(torch::kLong));
    } catch (const c10::IndexError&) {
      fail_called(name_, kEmbedding, x,
                  c10::str("indices from 0 to ", rows_ - 1, "; there are some from ", x.min().item<int64_t>(), " to ",
                           x.max().item<int64_t>()));
    }
  }

  void divide(const std::map<std::string, ParameterAxes>& axes, const Topology& /*topology*/) override {
    refuse_regularizer(name_, kEmbedding, "weight", regularizer_);
    const ParameterAxes& weight = axes.at("weight");
    by_rows_ = !weight[0].empty();
    axis_ = weight[by_rows_ ? 0 : 1];
  }

  torch::Tensor mask_of(const torch::Tensor& x, const torch::Tensor& mask) override {
    return mask_zero_ ? x.ne(0) : mask;
  }
  bool makes_mask() const override { return mask_zero_; }
  torch::Tensor penalty() const override { return penalty_of({{regularizer_, weight_}}); }

 private:
  torch::Tensor look_up(const torch::Tensor& x) const {
    if (axis_.empty()) return at::embedding(weight_, x);
    if (!by_rows_) return gather_along(at::embedding(weight_, x), axis_, -1);
    return look_up_in_parts(c10::str("[layers] ", name_, " (Embedding)"), weight_, x, rows_, axis_);
  }

  std::string name_;
  int64_t rows_;
  std::string axis_;      // along which the replicas have parts of the weight; empty: all have the whole
  bool by_rows_ = false;  // parts of the vocabulary, else of each row
  bool mask_zero_;
  Regularizer regularizer_;
  torch::Tensor weight_;
};

class EmbeddingKind final : public LayerKind {
 public:
  explicit EmbeddingKind(EmbeddingOptions options) : options_(std::move(options)) {
    if (options_.input_dim <= 0 || options_.output_dim <= 0) {
      fail_option(kEmbedding, "input_dim and output_dim must be positive, got ", options_.input_dim, " and ",
                  options_.output_dim);
    }
  }
  std::string_view type() const override { return kEmbedding; }
  std::string_view base_name() const override { return "embedding"; }
  Shape output_shape(const BuildContext& context) const override {
    if (options_.mask_zero && context.input.size() != 1) {
      fail_input(context.name, kEmbedding, to_text(context.input) + " an example", "[steps], for mask_zero");
    }
    Shape output;
    output.reserve(context.input.size() + 1);
    output.assign(context.input.begin(), context.input.end());
    output.push_back(options_.output_dim);
    return output;
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<EmbeddingModule>(options_, context);
  }

 private:
  EmbeddingOptions options_;
};

}  // namespace

torch::Tensor look_up_own(const std::string& who, const torch::Tensor& part, const torch::Tensor& x, int64_t rows,
                          const std::string& axis) {
  const Replica* replica = Replica::current();
  if (replica == nullptr) {
    fail<FailedPrecondition>(who, ": called outside run(), with a part of its rows; the replicas along \"", axis,
                             "\" look up together");
  }
  // One of the replicas along the axis has the row; the others add zeros. An index that none has stays outside.
  const int64_t own = part.size(0);
  const torch::Tensor here = x - own * replica->group(axis).rank();
  const torch::Tensor has = here.ge(0).logical_and(here.lt(own));
  const torch::Tensor row = at::where(has, here, at::where(x.ge(0).logical_and(x.lt(rows)), 0, own).to(x.dtype()));
  return at::embedding(part, row) * has.unsqueeze(-1).to(part.dtype());
}

torch::Tensor look_up_in_parts(const std::string& who, const torch::Tensor& part, const torch::Tensor& x, int64_t rows,
                               const std::string& axis) {
  return sum_along(look_up_own(who, part, x, rows, axis), axis);
}

Layer Embedding(const EmbeddingOptions& options) {
  return make_layer<EmbeddingKind>(options, options.trainable);
}

Layer Embedding(int64_t input_dim, int64_t output_dim) {
  return Embedding(EmbeddingOptions{.input_dim = input_dim, .output_dim = output_dim});
}

}  // namespace cohort
