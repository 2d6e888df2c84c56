// ShardUpdate: the update of one replica's shard of the parameters, with the slots of these elements alone. What a rule
// or clipping has to know of whole parameters, or of all of them, is added up over the replicas that share the states.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "cohort/communicator.h"
#include "cohort/optimizer.h"
#include "optimizer/update_rule.h"
#include "step/flat_parameters.h"
#include "step/scaling.h"
#include "step/update/cut_lines.h"
#include "step/update/layers.h"
#include "wings/sharding/step/offloaded_part.h"
#include "wings/sharding/step/shard_plan.h"

namespace cohort {

class ShardUpdate {
 public:
  // Updates the parameters of local replica `copy`, which is the owner `owner` of the plan: in the host's memory where
  // `host` is not null, else where the replica has them. With `by_kernels` they are float32 or float64 of the CPU; else
  // the update is made of tensor operations, and a rule that needs norms of whole parameters needs a plan that does not
  // cut them.
  ShardUpdate(const FlatParameters& flat, const Optimizer& rule, const ShardPlan& plan, int owner, std::size_t copy,
              bool by_kernels, std::unique_ptr<OffloadedPart> host = nullptr);

  // Says over which replicas the norms of parameters that are cut are added up, beside the owners. Lives as long as
  // this.
  void set_parts(const CutLines& cuts);

  int owner() const { return owner_; }
  // Returns the slots of the shard, [group][slot], flat.
  std::vector<std::vector<torch::Tensor>>& slots() { return slots_; }
  const std::vector<std::vector<torch::Tensor>>& slots() const { return slots_; }

  // A collective of the owners: `line` is this one's end of their group. `sums` are the summed gradients of this
  // owner's slices, one a unit, on the host's side where the values are; the rule may overwrite them. Returns whether
  // there was an update, the same on all owners: with a loss scale there is none by sums that are not finite.
  Verdict update(const std::vector<torch::Tensor>& sums, StepContext context, Communicator& line);

 private:
  // A part of a piece that stays in the first cache; a whole piece where the rule takes parameters whole.
  using Chunk = ShardPiece;

  bool scale(const std::vector<torch::Tensor>& sums, StepContext& context, Communicator& line);
  std::vector<double> squared_norms(const std::vector<torch::Tensor>& sums) const;
  std::vector<double> sum_over(Communicator& line, const std::vector<double>& own) const;
  void add_up(Communicator& line, torch::Tensor& numbers) const;
  StepContext clipped(std::size_t parameter, StepContext context) const;

  void update_by_kernels(const std::vector<torch::Tensor>& sums, const StepContext& context, Communicator& line);
  torch::Device device() const { return flat_.groups().front().copies[copy_].device(); }
  bool has_part_alone() const { return host_ != nullptr || flat_.shared() != nullptr; }
  const torch::Tensor& values(std::size_t group) const;
  Segment segment_of(const Chunk& chunk, const std::vector<torch::Tensor>& sums, void** slots) const;
  std::vector<double> trust_ratios(const std::vector<torch::Tensor>& sums, const StepContext& context,
                                   Communicator& line) const;
  template <typename Visit>
  void each_chunk(const Visit& visit) const;

  Verdict update_by_tensors(const std::vector<torch::Tensor>& sums, const StepContext& context, Communicator& line);
  torch::Tensor squared_norms(const std::vector<torch::Tensor>& sums, Communicator& line) const;
  void make_layers();
  bool is_layer(const ShardPiece& piece) const;
  void update_pieces(const ShardPiece& first, const ShardPiece& last, const std::vector<torch::Tensor>& sums,
                     StepContext context, DeviceScaling scaling, const torch::Tensor& squares);

  const FlatParameters& flat_;
  Optimizer rule_;
  int owner_;
  std::size_t copy_;
  bool by_kernels_;
  std::unique_ptr<OffloadedPart> host_;
  const CutLines* cuts_ = nullptr;                    // null: no parameter is cut
  std::vector<std::vector<torch::Tensor>> slots_;     // [group][slot]
  std::vector<std::unique_ptr<LayerTables>> layers_;  // [group]; null where kernels of devices make no norms
  std::vector<ShardPiece> pieces_;
  std::vector<Chunk> chunks_;
  // By kernels, where norms are needed: [parameter], squared, of the sums over all owners.
  std::vector<double> parameter_norms_;
};

}  // namespace cohort
