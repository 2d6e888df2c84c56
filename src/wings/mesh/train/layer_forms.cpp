#include "wings/mesh/train/layer_forms.h"

#include <c10/util/StringUtil.h>

#include "base/extension.h"
#include "base/fail.h"
#include "wings/mesh/train/parts_form.h"

namespace cohort {

namespace {

template <typename Layer, void (*kDivide)(Layer&, const ModuleCuts&, const Topology&)>
ModuleForm form_by() {
  return {.fits = [](const torch::nn::Module& module) { return dynamic_cast<const Layer*>(&module) != nullptr; },
          .divide = [](torch::nn::Module& module, const ModuleCuts& cuts,
                       const Topology& topology) { kDivide(dynamic_cast<Layer&>(module), cuts, topology); }};
}

}  // namespace

void fail_layout(const std::string& layer, std::string_view type, const ModuleCuts& cuts, const std::string& wanted) {
  std::vector<std::string> came;
  for (const auto& [parameter, names] : cuts) {
    for (std::size_t dim = 0; dim < names.size(); ++dim) {
      if (!names[dim].empty())
        came.push_back(c10::str(parameter, " in dimension ", dim, " along \"", names[dim], "\""));
    }
  }
  fail<InvalidArgument>("[mesh] layout: ", type, " \"", layer, "\" is to cut ", c10::Join(", ", came),
                        " and nothing else; it can cut ", wanted);
}

void refuse_regularizer(const std::string& layer, std::string_view type, const std::string& parameter,
                        const Regularizer& regularizer) {
  if (!regularizer) return;
  fail<InvalidArgument>("[mesh] layout: the ", parameter, " of ", type, " \"", layer,
                        "\" has a regularizer, which takes ",
                        "whole parameters, so that it cannot be cut; the l2 of the optimizer's options takes parts");
}

void install_layer_forms() {
  extend(form_by<DenseModule, divide_dense>());
  extend(form_by<ConvModule, divide_convolution>());
  extend(form_by<BatchNormModule, divide_batch_norm>());
  extend(form_by<EmbeddingModule, divide_embedding>());
  extend(form_by<Attention, divide_attention>());
  extend(AfterDivision{.act = join_layers});
}

}  // namespace cohort
