// FlatParameters: the trainable parameters of a mirrored module, laid out one after the other, so that the exchange and
// the update are passes over a few long runs of memory instead of hundreds of small tensors.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/mirrored.h"
#include "cohort/optimizer.h"
#include "optimizer/update_rule.h"
#include "strategy/core.h"
#include "strategy/parameter_layout.h"
#include "strategy/shared_parameters.h"

namespace cohort {

struct FlatParameter {
  std::string name;  // the first one of a tied parameter
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // the strides of its own layout, which is kept where it has no gaps
  int64_t size = 0;
  Treatment treatment = {};
  std::size_t group = 0;  // the FlatGroup that holds it
  int64_t offset = 0;     // the place of its first element there
};

// The parameters of one dtype.
struct FlatGroup {
  torch::ScalarType dtype = torch::kFloat;
  std::vector<std::size_t> members;   // indices of FlatParameters::parameters, by offset
  int64_t size = 0;                   // elements, padding included; padding stays zero
  std::vector<torch::Tensor> copies;  // a flat tensor a replica; the same one for all under shared central storage
  std::vector<int64_t> cuts;          // of a unit that the replicas share, between the slices of its owners
};

// Base of modules whose parameters others use, too: in stage 3 of ShardingOptions every replica has them whole.
class KeptWhole {
 public:
  virtual ~KeptWhole() = default;
};

class FlatParameters {
 public:
  // Takes the parameters that require gradients, a tied one once, and makes them views of flat memory (recorded
  // ones stay tensors of their own, each a group). If there are none at all it throws FailedPrecondition.
  // InvalidArgument: two of them share memory without being the same tensor.
  FlatParameters(const MirroredModule& module, const Optimizer& rule);

  const std::vector<FlatParameter>& parameters() const { return parameters_; }
  const std::vector<FlatGroup>& groups() const { return groups_; }
  // Returns the parameters that the replicas share: unit g is group g, of which the copies have no memory of
  // their own. Null where each replica has all parameters.
  const std::shared_ptr<SharedParameters>& shared() const { return shared_; }
  // Returns which parameters are cut, so that a replica's copy has its part of them.
  const ParameterLayout& layout() const { return *layout_; }
  // Returns a parameter's part of a flat tensor of its group, in its shape and layout.
  torch::Tensor part_of(const torch::Tensor& flat, std::size_t parameter) const;
  // Returns a gradient in the layout and dtype of its parameter, dense; undefined ones stay so.
  torch::Tensor laid_out(const torch::Tensor& gradient, std::size_t parameter) const;
  // Returns the module's own parameter tensors of a replica, in the same order.
  std::vector<torch::Tensor>& tensors(int local_id) { return tensors_[static_cast<std::size_t>(local_id)]; }

  // Returns the names of all parameters that require gradients, in the module's order, also of those that other
  // processes of a pipeline have (strategy/pipeline/absent.h).
  const std::vector<std::string>& all_names() const { return all_names_; }
  // Returns for each parameter whether its norm counts here, where the stages of a pipeline lie with several processes
  // and some parameters with several of them; empty: all do.
  const std::vector<bool>& counted() const { return counted_; }
  void set_counted(std::vector<bool> counted) { counted_ = std::move(counted); }

  // Frees the memory of a group that this process does not use.
  void release(std::size_t group);

  // Runs backward from a replica's loss, which adds gradients to those in the replica's parameters. Where the strategy
  // has several optimizers, other leaves get none.
  void backward(int local_id, const torch::Tensor& loss) const;
  // Takes the gradients that backward left in the replica's parameters and leaves none. FailedPrecondition when a
  // parameter no longer lives in the flat memory (the module was moved or converted since).
  std::vector<torch::Tensor> take_gradients(int local_id);
  // Drops the gradients in the parameters of all replicas.
  void drop_gradients();

  // Takes notice of the gradients of a loss, undefined where it does not reach a parameter. After the first losses of
  // replica 0 it warns of the parameters that none has reached.
  void note_reached(int local_id, const std::vector<torch::Tensor>& gradients) {
    if (local_id == 0 && unnoted_ > 0) note_reached(gradients);
  }
  // Does the same for a gradient that leaves during backward.
  void note_reached(int local_id, std::size_t parameter) {
    if (local_id == 0 && unnoted_ > 0) reached_[parameter] = 1;
  }

 private:
  void collect(const MirroredModule& module, const Optimizer& rule);
  // Makes the groups: parameters of one dtype, and where `unit_of` is not empty of one unit.
  void group(const std::vector<std::size_t>& unit_of);
  void lay_out(const MirroredModule& module);
  // The parameters become units that the replicas share.
  void share(const MirroredModule& module, const Optimizer& rule);
  // Returns 1 for the weights of row tables, which other processes keep, and 0 for other parameters; nothing without
  // such tables.
  std::vector<std::size_t> tables_apart(const torch::nn::Module& copy) const;
  // Returns what tells whether a parameter is where it was put.
  const void* home_of(const torch::Tensor& parameter) const;
  // Where work is recorded there is no memory to lay anything out in: each parameter is a group of its own.
  void keep_apart();
  void note_homes();
  void note_reached(const std::vector<torch::Tensor>& gradients);

  const LiveOptimizers& optimizers_;  // those of the strategy
  std::vector<FlatParameter> parameters_;
  std::vector<FlatGroup> groups_;
  std::vector<std::vector<torch::Tensor>> tensors_;  // [replica][parameter]
  std::vector<std::vector<const void*>> homes_;      // the address where each must be
  std::shared_ptr<SharedParameters> shared_;
  std::shared_ptr<const ParameterLayout> layout_;
  std::vector<std::string> all_names_;
  std::vector<bool> counted_;
  std::vector<char> reached_;  // [parameter]: a loss of replica 0 has
  int unnoted_ = 0;            // losses of replica 0 until the warning
};

}  // namespace cohort
