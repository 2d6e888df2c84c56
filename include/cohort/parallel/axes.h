// Parameters and activations of which the replicas along an axis of the topology have parts: which parameters are cut,
// the modules that compute with parts, and the steps between parts and wholes.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/topology.h"

namespace cohort {

// The axis of a mesh along which each dimension of a parameter is cut; an empty name for one that is not.
using ParameterAxes = std::vector<std::string>;

// Which parameters are cut, by their names: Keras 3's LayoutMap.
class LayoutMap {
 public:
  LayoutMap() = default;
  // Pairs of a name or a pattern (an ECMAScript regular expression, which is looked for in the name) and its axes.
  // InvalidArgument: a pattern that is none, or one that is there twice.
  LayoutMap(std::initializer_list<std::pair<std::string, ParameterAxes>> entries);

  // Adds an entry; see the constructor.
  void add(const std::string& pattern, const ParameterAxes& axes);
  // Returns the entries, in the order in which they came.
  const std::vector<std::pair<std::string, ParameterAxes>>& entries() const { return entries_; }
  // Returns the number of the entry for a parameter: the one that is its name, else the one whose pattern is found in
  // it; nullopt for none. InvalidArgument: several patterns are found in it.
  std::optional<std::size_t> find(std::string_view parameter) const;

 private:
  std::vector<std::pair<std::string, ParameterAxes>> entries_;
};

// Base of modules that compute with parts of their own parameters. Of the library's layers Dense, Conv2D,
// DepthwiseConv2D, BatchNormalization, Embedding and MultiHeadAttention do.
class DividedModule {
 public:
  virtual ~DividedModule() = default;
  // Called by Strategy::mirror(), once a copy, when the parameters are still whole: `axes` has those of this
  // module's own parameters, and of those of its children that do not derive from this class, that are cut, by their
  // names in the module, one axis a parameter; each dimension divides. The module chooses its form by them, or throws
  // InvalidArgument that names what would fit.
  virtual void divide(const std::map<std::string, ParameterAxes>& axes, const Topology& topology) = 0;
};

// The steps between tensors that all replicas of a line along an axis have and those of which each has its part
// (Shoeybi et al., "Megatron-LM", arXiv:1909.08053, which calls the first two f and g). To be called inside run(), by
// all replicas of the line, in the same order. NotFound: there is no such axis.
//
// Returns x, whose gradient is the sum of the gradients of all replicas of the line: before an operation with parts. Of
// a tensor that is divided along the line it returns the whole, and each part gets its part of that sum.
torch::Tensor enter_axis(const torch::Tensor& x, std::string_view axis);
// Returns the sum of x over the line, whose gradient is that of each x: after an operation that gives terms of a sum.
torch::Tensor sum_along(const torch::Tensor& x, std::string_view axis);
// Returns the parts of all replicas of the line one after the other along a dimension; each gets its part of the
// gradient.
torch::Tensor gather_along(const torch::Tensor& x, std::string_view axis, int64_t dim);
// Returns the same as a divided tensor, which has the sizes of the whole and stays in parts: for logits, of which each
// replica has some classes. Cross-entropies and accuracies of classes exchange a few numbers of each row
// ("vocabulary-parallel"); other operations gather what they need, or are an Unimplemented that names them.
torch::Tensor parts_along(const torch::Tensor& x, std::string_view axis, int64_t dim);
// Returns this replica's part of a dimension of x, whose gradient is that of all parts. InvalidArgument: the dimension
// does not divide by the size of the axis.
torch::Tensor part_along(const torch::Tensor& x, std::string_view axis, int64_t dim);

}  // namespace cohort
