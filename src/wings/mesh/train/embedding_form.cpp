#include <ATen/Functions.h>

#include <memory>

#include "base/fail.h"
#include "train/layers/support.h"
#include "wings/mesh/train/layer_forms.h"

namespace cohort {

namespace {

// The replicas along an axis have parts of the vocabulary, or of each row.
class EmbeddingForm final : public LayerForm {
 public:
  EmbeddingForm(const EmbeddingModule& layer, const ParameterAxes& axes)
      : layer_(layer), by_rows_(!axes[0].empty()), axis_(axes[by_rows_ ? 0 : 1]) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    if (!by_rows_) return gather_along(at::embedding(layer_.weight(), x), axis_, -1);
    const std::string speaker = c10::str("[layers] ", layer_.layer_name(), " (Embedding)");
    return look_up_in_parts(speaker, layer_.weight(), x, layer_.rows(), axis_);
  }

 private:
  const EmbeddingModule& layer_;
  bool by_rows_;
  std::string axis_;
};

}  // namespace

void divide_embedding(EmbeddingModule& layer, const ModuleCuts& cuts, const Topology& /*topology*/) {
  refuse_regularizer(layer.layer_name(), EmbeddingModule::kType, "weight", layer.regularizer());
  layer.take_form(std::make_unique<EmbeddingForm>(layer, cuts.at("weight")));
}

}  // namespace cohort
