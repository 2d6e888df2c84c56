// ChunkUpdate: the update of flat parameters in the CPU's memory, cut into one range a replica. A replica updates its
// range with the only copy of the slots there and stores the result in all copies of the parameters: one pass over
// memory, and the same bits everywhere. (The sharding of ZeRO, Rajbhandari et al., 2020, with stores in place of the
// gather.) It reads its own copy, which lies in the cache of its core: a line that the other cores have read has to be
// taken from them before it is written, and that takes several times as long as to overwrite whole lines of theirs.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/parallel.h"
#include "cohort/optimizer.h"
#include "ops/flush_denormals.h"
#include "optimizer/update_rule.h"
#include "step/flat_parameters.h"
#include "step/update/memory.h"

namespace cohort {

// A part of one parameter, inside one range.
struct Chunk {
  int range;
  std::size_t parameter;
  int64_t begin;  // within the parameter
  int64_t size;
};

class ChunkUpdate {
 public:
  // Parameters are float32 or float64.
  ChunkUpdate(const FlatParameters& flat, const Optimizer& rule, int ranges);

  // Returns the slots, [group][slot], flat.
  const std::vector<std::vector<torch::Tensor>>& slots() const { return slots_; }
  const std::vector<Chunk>& chunks(int range) const { return chunks_[static_cast<std::size_t>(range)]; }
  torch::ScalarType dtype(const Chunk& chunk) const { return memory_of(chunk).dtype(); }
  // Returns the chunk's place in flat tensors, one a group.
  void* place_in(const std::vector<torch::Tensor>& flats, const Chunk& chunk) const;
  // Returns the bytes from the beginning of the chunk's parameter to the chunk.
  int64_t offset_in_parameter(const Chunk& chunk) const { return chunk.begin * memory_of(chunk).item(); }

  // Calls visit(chunk, its number) for the chunks of a range, on all threads that the calling thread's operations may
  // use.
  template <typename Visit>
  void each_chunk(int range, const Visit& visit) const {
    const std::vector<Chunk>& own = chunks(range);
    parallel_for(static_cast<int64_t>(own.size()), chunks_a_thread_, [&](int64_t begin, int64_t end) {
      const FlushDenormals flush;
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) visit(own[i], i);
    });
  }

  // Updates one chunk by its summed gradient, which the rule may overwrite, and stores it in every copy.
  void update(const Chunk& chunk, void* gradient, const StepContext& context, double trust_ratio = 1.0) const;

  // An update that needs norms comes in phases, between which all replicas meet. Norms are added up chunk by chunk, in
  // an order that the number of threads does not change.

  // Keeps the norm of one chunk's sum; then add_norms() adds up a range's, and squared_norm() is that of all ranges.
  // With clipnorm the updates that follow clip by them.
  void keep_norm(int range, const Chunk& chunk, std::size_t number, const void* sum);
  void add_norms(int range);
  double squared_norm() const;
  // Does the first half of a rule that needs the norms of whole parameters; `sums` are flat, one a group.
  void prepare(int range, const std::vector<torch::Tensor>& sums, const StepContext& context);
  // Updates a range from `sums`; after prepare() of all ranges where the rule needs norms.
  void update_range(int range, const std::vector<torch::Tensor>& sums, const StepContext& context) const;

 private:
  // The copies of a group's parameters as a range's replica has them.
  struct Copies {
    UpdateMemory own;                // with the slots
    std::vector<std::byte*> others;  // those that are not the same memory
  };

  static Copies copies_for(std::size_t range, const FlatGroup& group, const std::vector<torch::Tensor>& slots);
  const FlatParameter& parameter_of(const Chunk& chunk) const { return flat_.parameters()[chunk.parameter]; }
  const Copies& copies_of(const Chunk& chunk) const {
    return copies_[static_cast<std::size_t>(chunk.range)][parameter_of(chunk).group];
  }
  const UpdateMemory& memory_of(const Chunk& chunk) const { return copies_of(chunk).own; }
  Segment segment_of(const Chunk& chunk, void* gradient, UpdateMemory::SlotPointers& slots) const;
  StepContext clipped(const Chunk& chunk, StepContext context) const;
  double trust_ratio(std::size_t parameter) const;

  const FlatParameters& flat_;
  Optimizer rule_;
  std::vector<std::vector<torch::Tensor>> slots_;
  std::vector<std::vector<Copies>> copies_;                 // [range][group]
  std::vector<std::vector<Chunk>> chunks_;                  // [range]
  std::vector<double> norms_;                               // [range]
  std::vector<std::vector<SquaredNorms>> chunk_norms_;      // [range][chunk]
  std::vector<std::vector<SquaredNorms>> parameter_norms_;  // [range][parameter], where the rule needs norms
  std::vector<std::vector<double>> gradient_norms_;         // [range][parameter], with clipnorm; squared
  int64_t chunks_a_thread_;
};

}  // namespace cohort
