// The forms in which the layers of the library compute with parts of their parameters.
#pragma once

#include <string>
#include <string_view>

#include "cohort/train/layers/initializer.h"
#include "train/layers/batch_norm_module.h"
#include "train/layers/conv_module.h"
#include "train/layers/dense_module.h"
#include "train/layers/embedding_module.h"
#include "wings/functional/train/attention_heads.h"
#include "wings/mesh/strategy/module_form.h"

namespace cohort {

// Do DividedModule::divide() for a layer.
void divide_dense(DenseModule& layer, const ModuleCuts& cuts, const Topology& topology);
void divide_convolution(ConvModule& layer, const ModuleCuts& cuts, const Topology& topology);
void divide_batch_norm(BatchNormModule& layer, const ModuleCuts& cuts, const Topology& topology);
void divide_embedding(EmbeddingModule& layer, const ModuleCuts& cuts, const Topology& topology);
void divide_attention(Attention& layer, const ModuleCuts& cuts, const Topology& topology);

// Fails with InvalidArgument that tells along which axes a layer's parameters were to be cut, and what it can do.
[[noreturn]] void fail_layout(const std::string& layer, std::string_view type, const ModuleCuts& cuts,
                              const std::string& wanted);
// Fails with InvalidArgument if a parameter that is to be cut has a regularizer.
void refuse_regularizer(const std::string& layer, std::string_view type, const std::string& parameter,
                        const Regularizer& regularizer);

// Adds the forms to what the layout of a mesh knows.
void install_layer_forms();

}  // namespace cohort
