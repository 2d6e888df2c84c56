// ModelOutputs: the outputs of a model as compile() describes them. It matches with them what forward() returns and the
// columns of the examples, by name, or by position where there are no names.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/train/model.h"

namespace cohort {

struct ModelOutput {
  std::string name;           // empty: the only one
  std::optional<Loss> loss;   // empty: it is only predicted, or measured by metrics
  double weight = 1.0;        // the weight of its loss in the sum of all
  bool needs_target = false;  // it has a loss or metrics
};

// One output of a replica's share, with what its loss and its metrics are worked out from.
struct OutputShare {
  torch::Tensor prediction;
  torch::Tensor y;
  torch::Tensor weight;         // undefined: 1
  torch::Tensor mask;           // undefined: everything counts
  torch::Tensor masked_weight;  // the two multiplied; undefined without either
};

class ModelOutputs {
 public:
  // "declared" are the names that the model was made with, if it was. InvalidArgument: the options do not fit them, or
  // each other.
  ModelOutputs(std::string speaker, const std::vector<std::string>& declared, const CompileOptions& options);

  const std::vector<ModelOutput>& list() const { return list_; }
  bool single() const { return list_.size() == 1; }
  // Returns the index of an output. InvalidArgument: there is none of that name; "what" says what was given for it.
  std::size_t index_of(std::string_view name, std::string_view what) const;

  // Throws InvalidArgument if the columns of a batch are not the outputs'.
  void check(const Example& batch) const;

  // Puts what forward() returned in the order of the outputs. InvalidArgument: there are others, or fewer.
  std::vector<torch::Tensor> arrange(NamedTensors returned) const;

  // Returns one output of a share with its columns.
  OutputShare share_of(const Example& share, std::size_t output, torch::Tensor prediction) const;

  // Returns for each output the number of elements of its masks and the number that they leave, [outputs, 2] in
  // float64; undefined if there are no masks.
  torch::Tensor mask_counts(const Example& batch) const;
  // Returns for each output by how much its mean loss grows where masked parts are no part of the mean: the quotient of
  // these numbers, of a global batch. The list is empty if there are none.
  std::vector<double> mask_scales(const torch::Tensor& counts) const;

 private:
  void add_outputs(const std::vector<std::string>& declared, const CompileOptions& options);
  void add_weights(const CompileOptions& options);
  void add_metrics(const CompileOptions& options);
  void check_names(const Example& batch) const;
  const torch::Tensor* column(const NamedTensors& columns, std::size_t output) const;
  torch::Tensor mask_of(const Example& share, std::size_t output) const;
  std::string names() const;

  std::string speaker_;
  std::vector<ModelOutput> list_;
};

// Returns the names of tensors as a list in quotation marks.
std::string quoted_names(const NamedTensors& tensors);

}  // namespace cohort
