// MeshStrategy: tensor parallelism beside data parallelism, on a mesh that has an axis for each.
//
//   cohort::MeshStrategy strategy(cohort::DeviceMesh({2, 2}, {"batch", "model"}, cohort::cpu_devices(4)),
//                                 {.layout = {{"dense\\.weight", {"model", ""}},      // by columns: the units
//                                             {"dense\\.bias", {"model"}},
//                                             {"dense_1\\.weight", {"", "model"}}}});  // by rows: the inputs
//
// The program is that of any other strategy. A parameter that the layout names is cut into equal parts along an axis;
// all others, and all buffers, are the same on every replica. The replicas of one line along the axis compute with
// their parts on the same examples, and draw the same random numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "cohort/device_mesh.h"
#include "cohort/parallel/axes.h"
#include "cohort/strategy.h"

namespace cohort {

// How the replicas of a line along an axis of the role kSpace, of which each has some positions, attend to all of them.
enum class SequenceAttention {
  kRing,     // keys and values go around the line, and no replica ever has all of them
  kUlysses,  // each replica gets all positions of some heads; the size of the axis divides the heads
};

struct MeshOptions {
  LayoutMap layout = {};  // the parameters that are cut; InvalidArgument, in mirror(): a pattern matches none
  // Has decoder(), bert() and vision_transformer() keep what lies between the products of their blocks (norms, dropout,
  // sums) in parts along the positions, one on each replica of the line along which the layout cuts ("sequence
  // parallelism", Korthikanti et al., arXiv:2205.05198; Megatron's sequence_parallel). InvalidArgument: not one axis
  // has the role kModel; in mirror(): the module is none of these. Any number of positions will do.
  bool sequence_parallel = false;
  // Options of the exchange of gradients along the axes that carry the batch.
  ExchangeOptions exchange = {};
  // States that the replicas of a line along an axis of the batch share (ZeRO, FSDP), of the parts of parameters that
  // each of them has. Unimplemented, when the optimizer is made: Adafactor with parameters that the layout cuts.
  ShardingOptions sharding = {};
  // The parts in each dimension in which fit(), evaluate() and predict() divide the inputs of a model among the
  // replicas of a line along the axis of the role kSpace, such as {1, 1, 2, 2} for height and width of images (NCHW);
  // an input with another number of dimensions is whole. InvalidArgument: their product is not the size of the axis, or
  // there is none; examples or channels would be cut. Along an axis of the name "sequence" they are {1, its size}
  // unless something else is given: inputs of two dimensions, such as tokens, are cut along their positions.
  std::vector<int64_t> input_partition_dims = {};
  // The same for evaluate() and predict(); empty: input_partition_dims.
  std::vector<int64_t> eval_input_partition_dims = {};
  // How positions attend to those of other replicas. InvalidArgument: it is not kRing, and no axis has the role kSpace.
  SequenceAttention attention = SequenceAttention::kRing;
};

// Data and tensor parallelism, or data parallelism and images in parts, in one process. num_replicas_in_sync() is the
// product of the axes that carry the batch; a PerReplica has a value for each device, and those of one line along
// another axis are alike.
class MeshStrategy : public Strategy {
 public:
  // InvalidArgument: the layout names an axis that does not divide parameters, or does not name one of the role kModel;
  // a device belongs to another process; the partition of the inputs does not fit, or more than one axis divides them.
  // NotFound: it names an axis that is not there. Unimplemented: an axis of the role kStage, one of the role kSpace
  // beside one of the role kModel, devices of XLA.
  explicit MeshStrategy(const DeviceMesh& mesh, const MeshOptions& options = {});
};

}  // namespace cohort
