// The update of a replica's range, in chunks that stay in the first cache, for the copies of all replicas: pointers
// into CPU tensors, which these replicas share.
#include "step/update/chunks.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/slices.h"
#include "ops/kernels/kernels.h"
#include "step/scaling.h"
#include "step/update/slots.h"

namespace cohort {

namespace {

// Gives each parameter as one chunk to the range in which its middle lies.
std::vector<std::vector<Chunk>> plan_whole_parameters(const FlatParameters& flat, int ranges) {
  std::vector<std::vector<Chunk>> chunks(static_cast<std::size_t>(ranges));
  for (const FlatGroup& group : flat.groups()) {
    for (const std::size_t p : group.members) {
      const FlatParameter& parameter = flat.parameters()[p];
      const int64_t middle = parameter.offset + parameter.size / 2;
      for (int r = 0; r < ranges; ++r) {
        const Slice range = slice_of(group.size, r, ranges);
        if (middle < range.begin || middle >= range.end) continue;
        chunks[static_cast<std::size_t>(r)].push_back({r, p, 0, parameter.size});
      }
    }
  }
  return chunks;
}

// Cuts the flat memory of all groups into ranges of about the same size, and these into chunks.
std::vector<std::vector<Chunk>> plan_chunks(const FlatParameters& flat, int ranges) {
  std::vector<std::vector<Chunk>> chunks(static_cast<std::size_t>(ranges));
  for (const FlatGroup& group : flat.groups()) {
    for (const std::size_t p : group.members) {
      const FlatParameter& parameter = flat.parameters()[p];
      for (int r = 0; r < ranges; ++r) {
        const Slice range = slice_of(group.size, r, ranges);
        const int64_t begin = std::max(parameter.offset, range.begin) - parameter.offset;
        const int64_t end = std::min(parameter.offset + parameter.size, range.end) - parameter.offset;
        for (int64_t at = begin; at < end; at += kUpdateChunk) {
          chunks[static_cast<std::size_t>(r)].push_back({r, p, at, std::min(kUpdateChunk, end - at)});
        }
      }
    }
  }
  return chunks;
}

}  // namespace

ChunkUpdate::ChunkUpdate(const FlatParameters& flat, const Optimizer& rule, int ranges)
    : flat_(flat),
      rule_(rule),
      slots_(make_slots(flat, rule, 0)),
      chunks_(rule.rule().takes_whole() ? plan_whole_parameters(flat, ranges) : plan_chunks(flat, ranges)),
      norms_(static_cast<std::size_t>(ranges)),
      chunks_a_thread_(rule.rule().takes_whole() ? 1 : kChunksAThread) {
  for (std::size_t r = 0; r < chunks_.size(); ++r) {
    std::vector<Copies>& own = copies_.emplace_back();
    for (std::size_t g = 0; g < flat.groups().size(); ++g) own.push_back(copies_for(r, flat.groups()[g], slots_[g]));
  }
  for (const auto& own : chunks_) chunk_norms_.emplace_back(own.size());
  if (rule.rule().needs_norms()) {
    parameter_norms_.assign(chunks_.size(), std::vector<SquaredNorms>(flat.parameters().size()));
  }
  if (rule.gradient().clipnorm > 0.0) {
    gradient_norms_.assign(chunks_.size(), std::vector<double>(flat.parameters().size()));
  }
}

ChunkUpdate::Copies ChunkUpdate::copies_for(std::size_t range, const FlatGroup& group,
                                            const std::vector<torch::Tensor>& slots) {
  Copies copies{.own = UpdateMemory(group.copies[range], slots), .others = {}};
  for (const torch::Tensor& copy : group.copies) {
    auto* place = static_cast<std::byte*>(copy.data_ptr());
    const bool known = place == copies.own.values(0) ||
                       std::find(copies.others.begin(), copies.others.end(), place) != copies.others.end();
    if (!known) copies.others.push_back(place);
  }
  return copies;
}

void* ChunkUpdate::place_in(const std::vector<torch::Tensor>& flats, const Chunk& chunk) const {
  const FlatParameter& parameter = parameter_of(chunk);
  return static_cast<std::byte*>(flats[parameter.group].data_ptr()) +
         (parameter.offset + chunk.begin) * memory_of(chunk).item();
}

Segment ChunkUpdate::segment_of(const Chunk& chunk, void* gradient, UpdateMemory::SlotPointers& slots) const {
  const FlatParameter& parameter = parameter_of(chunk);
  Segment segment =
      memory_of(chunk).segment(parameter.offset + chunk.begin, chunk.size, gradient, parameter.treatment, slots);
  segment.shape = parameter.shape;
  segment.strides = parameter.strides;
  return segment;
}

// Returns the context with the factor of clipping the gradient of the chunk's parameter.
StepContext ChunkUpdate::clipped(const Chunk& chunk, StepContext context) const {
  if (gradient_norms_.empty()) return context;
  double squared_norm = 0.0;
  for (const std::vector<double>& own : gradient_norms_) squared_norm += own[chunk.parameter];
  context.grad_scale *= clip_factor(squared_norm * context.grad_scale * context.grad_scale, rule_.gradient().clipnorm);
  return context;
}

void ChunkUpdate::update(const Chunk& chunk, void* gradient, const StepContext& context, double trust_ratio) const {
  const FlatParameter& parameter = parameter_of(chunk);
  const UpdateMemory& memory = memory_of(chunk);
  const int64_t begin = parameter.offset + chunk.begin;
  UpdateMemory::SlotPointers slots;
  Segment segment = segment_of(chunk, gradient, slots);
  segment.trust_ratio = trust_ratio;
  rule_.rule().update(segment, clipped(chunk, context));
  for (std::byte* copy : copies_of(chunk).others) {
    std::memcpy(copy + begin * memory.item(), segment.parameter, static_cast<std::size_t>(chunk.size * memory.item()));
  }
}

void ChunkUpdate::keep_norm(int range, const Chunk& chunk, std::size_t number, const void* sum) {
  chunk_norms_[static_cast<std::size_t>(range)][number].direction =
      kernels::squared_norm(sum, chunk.size, dtype(chunk));
}

void ChunkUpdate::add_norms(int range) {
  double& norm = norms_[static_cast<std::size_t>(range)];
  norm = 0.0;
  for (const SquaredNorms& chunk : chunk_norms_[static_cast<std::size_t>(range)]) norm += chunk.direction;
  if (gradient_norms_.empty()) return;
  std::vector<double>& totals = gradient_norms_[static_cast<std::size_t>(range)];
  std::fill(totals.begin(), totals.end(), 0.0);
  const std::vector<SquaredNorms>& own = chunk_norms_[static_cast<std::size_t>(range)];
  for (std::size_t i = 0; i < own.size(); ++i) totals[chunks(range)[i].parameter] += own[i].direction;
}

double ChunkUpdate::squared_norm() const {
  return std::accumulate(norms_.begin(), norms_.end(), 0.0);
}

void ChunkUpdate::prepare(int range, const std::vector<torch::Tensor>& sums, const StepContext& context) {
  std::vector<SquaredNorms>& own = chunk_norms_[static_cast<std::size_t>(range)];
  each_chunk(range, [&](const Chunk& chunk, std::size_t i) {
    UpdateMemory::SlotPointers slots;
    own[i] = rule_.rule().prepare(segment_of(chunk, place_in(sums, chunk), slots), clipped(chunk, context));
  });
  std::vector<SquaredNorms>& totals = parameter_norms_[static_cast<std::size_t>(range)];
  std::fill(totals.begin(), totals.end(), SquaredNorms{});
  for (std::size_t i = 0; i < own.size(); ++i) {
    totals[chunks(range)[i].parameter].parameter += own[i].parameter;
    totals[chunks(range)[i].parameter].direction += own[i].direction;
  }
}

void ChunkUpdate::update_range(int range, const std::vector<torch::Tensor>& sums, const StepContext& context) const {
  each_chunk(range, [&](const Chunk& chunk, std::size_t) {
    update(chunk, place_in(sums, chunk), context, trust_ratio(chunk.parameter));
  });
}

double ChunkUpdate::trust_ratio(std::size_t parameter) const {
  if (parameter_norms_.empty() || !flat_.parameters()[parameter].treatment.adapt) return 1.0;
  SquaredNorms total;
  for (const auto& own : parameter_norms_) {
    total.parameter += own[parameter].parameter;
    total.direction += own[parameter].direction;
  }
  return rule_.rule().trust_ratio(total);
}

}  // namespace cohort
