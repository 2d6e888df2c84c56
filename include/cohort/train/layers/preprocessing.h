// Layers that prepare features: they normalize numbers, and make categories of numbers and integers. Some of them learn
// from data first:
//
//   AdaptedLayer normalize = Normalization();
//   normalize.adapt(train);
//   Sequential model{normalize, Dense(64, Activation::kRelu), Dense(1)};
//
// In a pipeline, apply_layer() is the function of such a layer:
//
//   train.map([f = apply_layer(normalize)](Example e) { e.x = f(e.x); return e; });
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cohort/train/layers/layer.h"

namespace cohort {

class Dataset;

// A layer that learns from data before a model is made of it. It is a value: copies of it, and the layers of models
// that were made before, keep what they have.
class AdaptedLayer : public Layer {
 public:
  // Takes a layer of a sort that learns; adapt() of another one is InvalidArgument.
  explicit AdaptedLayer(const Layer& layer) : Layer(layer) {}

  // Learns from one batch, [batch, ...], and forgets what was learned before. InvalidArgument: the batch does not fit,
  // or is empty. FailedPrecondition: the layer was given what it would learn.
  void adapt(const torch::Tensor& batch);
  // The same from all batches of one pass, of which it takes the input. InvalidArgument: the elements are no batches,
  // have several inputs, or there is no end.
  void adapt(const Dataset& batches);
};

// Returns the function that a layer without parameters is, for Dataset::map(): of a batch on the CPU, [batch, ...]. All
// calls take the shape of the first one, but for the batch. Thread-safe.
std::function<torch::Tensor(const torch::Tensor&)> apply_layer(const Layer& layer);

struct NormalizationOptions {
  std::vector<int64_t> axis = {-1};  // dimensions with a mean for each index, the batch's is 0; {}: one mean for all
  torch::Tensor mean = {};           // given means, of one dimension for each axis or fewer; undefined: adapt()
  torch::Tensor variance = {};       // given variances, of the same shape
  bool invert = false;               // makes numbers of normalized ones
  std::string name = {};             // empty: the model gives one
};
// (x - mean) / max(sqrt(variance), 1e-7), and the opposite with `invert`; integers become floating point. Buffers mean
// and variance, of the sizes of the axes, and count, 0 as in Keras, unless the means are given. FailedPrecondition at
// the first call: neither adapted, nor given, nor loaded.
AdaptedLayer Normalization(const NormalizationOptions& options = {});

// The form of categories. kInt: a number each, int64. The others are floating point and have a dimension of all
// categories. kOneHot: instead of a last dimension of 1, or behind the last one. kMultiHot: [samples] become 1 for each
// category that is among them; kCount: its number; kTfIdf: its number times its weight.
enum class OutputMode { kInt, kOneHot, kMultiHot, kCount, kTfIdf };

struct CategoryEncodingOptions {
  int64_t num_tokens = 0;                          // the number of categories; needed
  OutputMode output_mode = OutputMode::kMultiHot;  // kOneHot, kMultiHot or kCount
  std::string name = {};                           // empty: the model gives one
};
// Encodes categories from 0 to num_tokens - 1; other numbers are in no category.
Layer CategoryEncoding(const CategoryEncodingOptions& options);
// The same for a tensor, [batch], [batch, samples] or, one-hot, of any shape; kMultiHot and kCount take [samples] for
// one example. count_weights, of the shape of x, are added up instead of ones (kCount only). InvalidArgument: the
// shapes or the options do not fit.
torch::Tensor encode_categories(const torch::Tensor& x, const CategoryEncodingOptions& options,
                                const torch::Tensor& count_weights = {});

struct DiscretizationOptions {
  std::vector<double> bin_boundaries = {};    // ascending, rounded to float32; a number on one is in the bin behind it
  std::optional<int64_t> num_bins = {};       // the number of bins that adapt() finds boundaries for, at most
  double epsilon = 0.01;                      // the part of the data by which adapt() may miss a quantile
  OutputMode output_mode = OutputMode::kInt;  // kInt, kOneHot, kMultiHot or kCount
  std::string name = {};                      // empty: the model gives one
};
// Makes the numbers of bins of numbers. Needs either bin_boundaries, or num_bins and adapt(). FailedPrecondition when a
// model is built: not adapted.
AdaptedLayer Discretization(const DiscretizationOptions& options);

// The index of an integer that is not in the vocabulary, among several: the integer modulo their number, or a hash of
// its decimal digits (FarmHash64, or SipHash64 with a salt).
enum class OovMethod { kFloorMod, kFarmHash };

struct IntegerLookupOptions {
  std::optional<int64_t> max_tokens = {};       // the size of the vocabulary with its special tokens, at most
  int64_t num_oov_indices = 1;                  // indices of integers that are not in it; 0: these are an error
  std::optional<int64_t> mask_token = {};       // index 0 of kInt; left out of the other forms
  int64_t oov_token = -1;                       // what `invert` returns for indices of no token
  std::vector<int64_t> vocabulary = {};         // with or without the special tokens in front; empty: adapt()
  std::vector<double> idf_weights = {};         // of the vocabulary, for kTfIdf
  bool invert = false;                          // makes integers of indices
  OutputMode output_mode = OutputMode::kInt;    // any
  bool pad_to_max_tokens = false;               // the forms with a dimension of all tokens have max_tokens
  OovMethod oov_method = OovMethod::kFloorMod;  // how several indices divide the integers that are not in it
  std::vector<int64_t> salt = {};               // one or two numbers for SipHash64; empty: FarmHash64
  std::string name = {};                        // empty: the model gives one
};
// Makes indices of integers: that of the mask token, those of integers that are not in the vocabulary, those of its
// tokens. adapt() takes the tokens by their frequency, the larger ones first among equals. FailedPrecondition when a
// model is built: not adapted. InvalidArgument when called: num_oov_indices is 0 and an integer is not there.
AdaptedLayer IntegerLookup(const IntegerLookupOptions& options);

struct HashingOptions {
  int64_t num_bins = 0;                       // the number of bins; needed
  std::optional<int64_t> mask_value = {};     // the integer of bin 0, which no other one gets
  std::vector<int64_t> salt = {};             // one or two numbers for SipHash64; empty: FarmHash64
  OutputMode output_mode = OutputMode::kInt;  // kInt, kOneHot, kMultiHot or kCount
  std::string name = {};                      // empty: the model gives one
};
// Makes the numbers of bins of integers by a hash of their decimal digits. Computes on the CPU.
Layer Hashing(const HashingOptions& options);

struct HashedCrossingOptions {
  int64_t num_bins = 0;                       // the number of bins; needed
  OutputMode output_mode = OutputMode::kInt;  // kInt or kOneHot
};
// Makes the numbers of bins of two or more features together, integers of [batch] or [batch, 1] each (Keras' layer
// HashedCrossing). Returns the same shape, or [batch, num_bins] in float32. Computes on the CPU. InvalidArgument: fewer
// features, other shapes or no integers.
torch::Tensor hashed_crossing(const std::vector<torch::Tensor>& features, const HashedCrossingOptions& options);

}  // namespace cohort
