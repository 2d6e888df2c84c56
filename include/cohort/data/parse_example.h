// tf.io.parse_single_example and tf.io.parse_example: the features of a record, or of a batch of records, by the forms
// that a program expects of them.
//
//   auto features = io::parse_single_example(record, {{"label", io::FixedLenFeature{.dtype =
//   io::FeatureDtype::kInt64}},
//                                                     {"image/encoded", io::FixedLenFeature{.dtype =
//                                                     io::FeatureDtype::kString}}});
//   auto label = std::get<torch::Tensor>(features.at("label"));
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace cohort::io {

// The type of the values of a feature.
enum class FeatureDtype { kString, kInt64, kFloat32 };

// The values of a feature: int64 or float32, or byte strings, those of a shape in the order of its elements.
using FeatureValues = std::variant<torch::Tensor, std::vector<std::string>>;

// A feature that has as many values as the shape has elements, in every record.
struct FixedLenFeature {
  std::vector<int64_t> shape = {};              // {}: one value, a scalar
  FeatureDtype dtype = FeatureDtype::kFloat32;  // the sort of values
  // Taken where a record has no such feature: one value for all elements, or one for each. Unset: the feature is
  // needed.
  std::optional<FeatureValues> default_value = std::nullopt;
};
// Any number of values, none where a record has no such feature: one dimension.
struct VarLenFeature {
  FeatureDtype dtype = FeatureDtype::kFloat32;  // the sort of values
};
// Any number of elements of a shape, stacked: [number, shape...].
struct FixedLenSequenceFeature {
  std::vector<int64_t> shape = {};              // the shape of one element
  FeatureDtype dtype = FeatureDtype::kFloat32;  // the sort of values
  bool allow_missing = false;                   // a record without the feature has none; else it is an error
  // The one value with which parse_example() fills up shorter records. Unset: 0, or an empty string.
  std::optional<FeatureValues> default_value = std::nullopt;
};
// A sparse vector whose places and values are two features: a sparse tensor [size], int64 or float32.
struct SparseFeature {
  std::string index_key;                        // the feature with the places, int64
  std::string value_key;                        // the feature with the values
  FeatureDtype dtype = FeatureDtype::kFloat32;  // the sort of values; kString is InvalidArgument
  int64_t size = 0;                             // places are below it
};
// The form of one feature.
using FeatureSpec = std::variant<FixedLenFeature, VarLenFeature, FixedLenSequenceFeature, SparseFeature>;

// Parses a serialized tf.train.Example. DataLoss: the bytes are none, a feature that is needed is not there, or has
// another sort or number of values; the message names the record (`source`) and the feature. InvalidArgument: a form
// makes no sense. Features that nobody asks for are left out. Thread-safe.
std::map<std::string, FeatureValues> parse_single_example(std::string_view bytes,
                                                          const std::map<std::string, FeatureSpec>& features,
                                                          const std::string& source = "record");

// The values of a feature in a batch of records: a tensor; byte strings, all records' in the order of the elements; or
// those of each record, where they may be of different numbers (VarLenFeature of kString).
using BatchValues = std::variant<torch::Tensor, std::vector<std::string>, std::vector<std::vector<std::string>>>;

// Parses a batch of serialized tf.train.Examples as tf.io.parse_example() does; the first dimension is the batch.
// FixedLenFeature: [batch, shape...]. FixedLenSequenceFeature: [batch, longest, shape...], shorter ones filled up with
// default_value; it needs allow_missing (InvalidArgument). VarLenFeature: a sparse tensor [batch, longest].
// SparseFeature: a sparse tensor [batch, size]. Sparse tensors have their places in the order of the records. Errors
// are those of parse_single_example(), with the number of the record behind the `source`. Thread-safe.
std::map<std::string, BatchValues> parse_example(const std::vector<std::string_view>& batch,
                                                 const std::map<std::string, FeatureSpec>& features,
                                                 const std::string& source = "record");

}  // namespace cohort::io
