// Mirrored<M>: one conceptual module, a copy on every replica.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/values.h"

namespace cohort {

class ParameterLayout;
class StrategyCore;

// Base of modules that may want the first replica's buffers to count where those of all replicas become one. The
// floating-point buffers of other modules become their mean.
class FirstReplicaBuffers {
 public:
  virtual ~FirstReplicaBuffers() = default;
  // Returns whether the first replica's buffers count. The same on every copy.
  virtual bool first_replica_counts() const = 0;
};

// Base of modules that say which parts of them are units of parameters that replicas share (stage 3 of
// ShardingOptions), where the blocks and layers that docs/parallelism.md tells of are not what is wanted.
class ShardingUnits {
 public:
  virtual ~ShardingUnits() = default;
  // Returns the names of children, each of which is a unit, with all that it has inside. NotFound, when an optimizer is
  // made: there is no such child. The same on every copy.
  virtual std::vector<std::string> sharding_units() const = 0;
};

// A mirrored module without the type of the module, for optimizers, checkpoints and Model.
class MirroredModule {
 public:
  MirroredModule() = default;

  // Returns the modules, in local replica order.
  const std::vector<std::shared_ptr<torch::nn::Module>>& copies() const { return copies_; }
  // Returns whether the handle refers to a module.
  bool defined() const { return !copies_.empty(); }

  // Sets training or evaluation mode on every copy.
  void train(bool on = true) const;
  // Sets evaluation mode on every copy.
  void eval() const { train(false); }

  // Buffers (such as batch-norm statistics) stay per replica while training. This makes them equal: floating ones
  // become the mean over the replicas, others, and those of FirstReplicaBuffers, the first replica's. Done before
  // evaluating; a collective of all workers.
  void synchronize_buffers() const;

  // Returns the conceptual module's parameters and buffers by name; a tied one, which is registered under several
  // names, under the first of them. The parameters, and with one replica the buffers, are the first copy's own, so copy
  // what must not change; with several the buffers are what synchronize_buffers() makes of them, and those of the
  // replicas stay as they are. Parameters that the replicas share (stage 3 of ShardingOptions), and those of which they
  // have parts (MeshStrategy), are gathered copies. A collective of all workers.
  std::vector<std::pair<std::string, torch::Tensor>> state() const;

  // Sets parameters and buffers of every copy by name; a tied one by any of its names. A name that is not there:
  // NotFound; a wrong shape or dtype, or different values for one tied tensor: InvalidArgument; with `strict` a tensor
  // of the module that is not given: NotFound.
  void load_state(const std::vector<std::pair<std::string, torch::Tensor>>& state, bool strict = true) const;

  // Gives every copy on every worker the values of the chief's first one; a collective of all workers.
  void copy_from_chief() const;

 private:
  friend class Access;
  friend class Strategy;

  // Takes the copies, in local replica order. They must have the same parameters in the same order, and each replica
  // its own (InvalidArgument otherwise). Values are copied from the first to the others; under central storage the
  // parameters become one storage.
  MirroredModule(std::shared_ptr<StrategyCore> core, std::vector<std::shared_ptr<torch::nn::Module>> copies);

  std::vector<std::pair<std::string, torch::Tensor>> mean_buffers() const;
  void copy_parts_from_chief() const;

  std::shared_ptr<StrategyCore> core_;
  std::vector<std::shared_ptr<torch::nn::Module>> copies_;
  std::shared_ptr<const ParameterLayout> layout_;
};

// Compares the parameters of the copies on all replicas of all workers, bit by bit, by their checksums (CRC32C). They
// are equal unless memory or a device is faulty, machines round in different ways, or the program has changed
// parameters on one replica alone. A collective of all workers. DataLoss: they differ; the message names the replicas
// that do not have what most replicas have, and the first parameter. Nothing is compared on devices of XLA, where one
// program updates all copies, nor of parameters that the replicas share (stage 3 of ShardingOptions) or have parts of
// (MeshStrategy). Workers that make updates of their own (LocalSgdOptions) each compare those of their own replicas.
void compare_copies(const MirroredModule& module);

// M is a module holder (made by TORCH_MODULE) or a std::shared_ptr to a module. Made by Strategy::mirror(). A handle:
// copies refer to the same modules, and constness of the handle is not constness of the module.
template <typename M>
class Mirrored : public MirroredModule {
 public:
  Mirrored() = default;
  // The library uses this: Strategy::mirror() makes mirrored modules.
  Mirrored(MirroredModule base, std::vector<M> modules)
      : MirroredModule(std::move(base)), modules_(std::make_shared<PerReplica<M>>(std::move(modules))) {}

  // Returns this replica's copy: net[replica]->forward(x).
  M& operator[](const Replica& replica) const { return (*modules_)[replica]; }
  M& operator[](std::size_t local_replica) const { return (*modules_)[local_replica]; }

 private:
  std::shared_ptr<PerReplica<M>> modules_;
};

}  // namespace cohort
