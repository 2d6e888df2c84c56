#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include "cohort/train/layers/basic.h"
#include "train/layers/embedding_module.h"
#include "train/layers/support.h"

namespace cohort {

EmbeddingModule::EmbeddingModule(const EmbeddingOptions& options, const BuildContext& context)
    : name_(context.name),
      rows_(options.input_dim),
      mask_zero_(options.mask_zero),
      regularizer_(options.embeddings_regularizer) {
  weight_ = register_parameter("weight", torch::empty({options.input_dim, options.output_dim}, context.dtype));
  options.embeddings_initializer.fill(weight_, static_cast<double>(options.input_dim),
                                      static_cast<double>(options.output_dim));
  constrain_by(options.embeddings_constraint, weight_, [](const torch::Tensor& rows) { return rows; });
}

torch::Tensor EmbeddingModule::forward(const torch::Tensor& x) {
  if (!at::isIntegralType(x.scalar_type(), /*includeBool=*/false)) fail_called(name_, kType, x, "integers");
  const bool indexes = x.scalar_type() == torch::kLong || x.scalar_type() == torch::kInt;
  const torch::Tensor indices = indexes ? x : x.to(torch::kLong);
  try {
    return form() != nullptr ? form()->forward(indices) : at::embedding(weight_, indices);
  } catch (const c10::IndexError&) {
    fail_called(name_, kType, x,
                c10::str("indices from 0 to ", rows_ - 1, "; there are some from ", x.min().item<int64_t>(), " to ",
                         x.max().item<int64_t>()));
  }
}

torch::Tensor EmbeddingModule::penalty() const {
  // The rows lie as in Keras.
  return penalty_of({{regularizer_, regularizer_.takes_keras_layout() ? weight_.t() : weight_}});
}

namespace {

class EmbeddingKind final : public LayerKind {
 public:
  explicit EmbeddingKind(EmbeddingOptions options) : options_(std::move(options)) {
    if (options_.input_dim <= 0 || options_.output_dim <= 0) {
      fail_option(EmbeddingModule::kType, "input_dim and output_dim must be positive, got ", options_.input_dim,
                  " and ", options_.output_dim);
    }
  }
  std::string_view type() const override { return EmbeddingModule::kType; }
  std::string_view base_name() const override { return "embedding"; }
  Shape output_shape(const BuildContext& context) const override {
    if (options_.mask_zero && context.input.size() != 1) {
      fail_input(context.name, EmbeddingModule::kType, to_text(context.input) + " an example",
                 "[steps], for mask_zero");
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

Layer Embedding(const EmbeddingOptions& options) {
  return make_layer<EmbeddingKind>(options, options.trainable);
}

Layer Embedding(int64_t input_dim, int64_t output_dim) {
  return Embedding(EmbeddingOptions{.input_dim = input_dim, .output_dim = output_dim});
}

}  // namespace cohort
