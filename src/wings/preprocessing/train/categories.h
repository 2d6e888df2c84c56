// The forms of categories, which several layers have in common.
#pragma once

#include <torch/types.h>

#include <array>
#include <initializer_list>
#include <string>
#include <string_view>

#include "cohort/train/layers/preprocessing.h"

namespace cohort {

// The names of the forms in files.
inline constexpr auto option_names(OutputMode /*of*/) {
  return std::to_array<std::string_view>({"int", "one_hot", "multi_hot", "count", "tf_idf"});
}

// Fails with InvalidArgument unless a layer has this form.
void check_mode(std::string_view type, OutputMode mode, std::initializer_list<OutputMode> modes);
// The same unless a number that is needed is positive.
void check_positive(std::string_view type, std::string_view option, int64_t number);

// Returns the shape of categories of an input, `depth` of them in all. InvalidArgument: the input does not fit.
Shape encoded_shape(const BuildContext& context, std::string_view type, OutputMode mode, int64_t depth);

// Returns categories, int64 and [batch, ...], in a form; numbers that are none of `depth` count for none. kMultiHot and
// kCount take [samples], too. `weights`, if they are defined, are counted instead of ones.
torch::Tensor encoded(const torch::Tensor& categories, OutputMode mode, int64_t depth, torch::ScalarType dtype,
                      const torch::Tensor& weights = {});

}  // namespace cohort
