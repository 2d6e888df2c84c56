// By kernels a shard is updated in chunks that stay in the first cache: pointers into CPU tensors, of which slots and
// sums have the elements of the shard alone. By tensor operations neighbouring pieces that are treated alike are one
// call. Norms are added up in an order that the number of threads does not change, then over the owners in theirs.
#include "wings/sharding/step/shard_update.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "base/parallel.h"
#include "ops/flush_denormals.h"
#include "ops/kernels/kernels.h"
#include "step/scaling.h"
#include "step/update/memory.h"
#include "step/update/slots.h"
#include "step/update/tensors.h"

namespace cohort {

namespace {

std::byte* place_in(const torch::Tensor& flat, int64_t element) {
  return static_cast<std::byte*>(flat.data_ptr()) + element * static_cast<int64_t>(flat.element_size());
}

}  // namespace

ShardUpdate::ShardUpdate(const FlatParameters& flat, const Optimizer& rule, const ShardPlan& plan, int owner,
                         std::size_t copy, bool by_kernels, std::unique_ptr<OffloadedPart> host)
    : flat_(flat),
      rule_(rule),
      owner_(owner),
      copy_(copy),
      by_kernels_(by_kernels),
      host_(std::move(host)),
      pieces_(plan.pieces(owner)) {
  const UpdateRule& arithmetic = rule.rule();
  for (std::size_t g = 0; g < flat.groups().size(); ++g) {
    const FlatGroup& group = flat.groups()[g];
    const auto options = at::TensorOptions()
                             .dtype(slot_dtype(group.dtype))
                             .device(host_ ? torch::Device(torch::kCPU) : group.copies[copy].device());
    std::vector<torch::Tensor>& own = slots_.emplace_back();
    for (const SlotKind& slot : slots_for(rule, group.dtype)) {
      own.push_back(torch::full({plan.size(g, owner)}, slot.initial, options));
    }
  }
  for (const ShardPiece& piece : pieces_) {
    const int64_t most = arithmetic.takes_whole() ? piece.size : kUpdateChunk;
    for (int64_t at = 0; at < piece.size; at += most) {
      chunks_.push_back({.parameter = piece.parameter,
                         .begin = piece.begin + at,
                         .size = std::min(most, piece.size - at),
                         .at = piece.at + at,
                         .unit = piece.unit,
                         .in_slice = piece.in_slice + at});
    }
  }
  make_layers();
}

// Kernels of devices make norms of whole parameters only.
void ShardUpdate::set_parts(const CutLines& cuts) {
  cuts_ = &cuts;
  for (auto& layers : layers_) layers.reset();
}

// Pieces are whole parameters where a rule needs norms and the host's kernels do not make them.
void ShardUpdate::make_layers() {
  for (std::size_t g = 0; g < flat_.groups().size(); ++g) {
    std::unique_ptr<LayerTables>& layers = layers_.emplace_back();
    const torch::Device there = host_ ? torch::Device(torch::kCPU) : device();
    if (by_kernels_ || !LayerTables::serve(rule_.rule(), flat_.groups()[g].dtype, there)) continue;
    std::vector<LayerTables::Place> places;
    for (const ShardPiece& piece : pieces_) {
      const FlatParameter& parameter = flat_.parameters()[piece.parameter];
      if (parameter.group != g) continue;
      places.push_back({.begin = piece.at,
                        .size = piece.size,
                        .treatment = parameter.treatment,
                        .shape = parameter.shape,
                        .is_taken = rule_.rule().takes_layer(parameter.shape, parameter.strides)});
    }
    std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    layers = std::make_unique<LayerTables>(rule_.rule(), std::move(places), there);
  }
}

// Returns whether kernels of devices update the piece by its norms.
bool ShardUpdate::is_layer(const ShardPiece& piece) const {
  const auto& layers = layers_[flat_.parameters()[piece.parameter].group];
  return layers != nullptr && layers->takes(piece.at);
}

template <typename Visit>
void ShardUpdate::each_chunk(const Visit& visit) const {
  const int64_t chunks_a_thread = rule_.rule().takes_whole() ? 1 : kChunksAThread;
  parallel_for(static_cast<int64_t>(chunks_.size()), chunks_a_thread, [&](int64_t begin, int64_t end) {
    const FlushDenormals flush;
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) visit(chunks_[i], i);
  });
}

Verdict ShardUpdate::update(const std::vector<torch::Tensor>& sums, StepContext context, Communicator& line) {
  const FlushDenormals flush;
  if (by_kernels_ && needs_norm(rule_.gradient()) && !scale(sums, context, line)) return false;
  if (host_) host_->fetch();
  Verdict verdict = true;
  if (by_kernels_) {
    update_by_kernels(sums, context, line);
  } else {
    verdict = update_by_tensors(sums, context, line);
  }
  if (host_ && !verdict.is_left_out()) host_->send();
  return verdict;
}

// Makes the norms of all owners' sums, and from them the factor of clipping.
bool ShardUpdate::scale(const std::vector<torch::Tensor>& sums, StepContext& context, Communicator& line) {
  parameter_norms_ = sum_over(line, squared_norms(sums));
  double total = 0.0;
  for (const double norm : parameter_norms_) total += norm;
  return scale_by_norm(total, rule_.gradient(), context);
}

// Returns the squared norm of what this owner has of each parameter.
std::vector<double> ShardUpdate::squared_norms(const std::vector<torch::Tensor>& sums) const {
  std::vector<double> norms(flat_.parameters().size(), 0.0);
  std::vector<double> of_chunks(chunks_.size());
  each_chunk([&](const Chunk& chunk, std::size_t i) {
    const torch::Tensor& sum = sums[chunk.unit];
    of_chunks[i] = kernels::squared_norm(place_in(sum, chunk.in_slice), chunk.size, sum.scalar_type());
  });
  for (std::size_t i = 0; i < chunks_.size(); ++i) norms[chunks_[i].parameter] += of_chunks[i];
  return norms;
}

std::vector<double> ShardUpdate::sum_over(Communicator& line, const std::vector<double>& own) const {
  torch::Tensor all = torch::tensor(own, torch::kDouble);
  add_up(line, all);
  return {all.data_ptr<double>(), all.data_ptr<double>() + all.numel()};
}

// Adds numbers up over the owners, whose messages are on their devices, and over those who have other parts.
void ShardUpdate::add_up(Communicator& line, torch::Tensor& numbers) const {
  torch::Tensor there = numbers.to(device(), /*non_blocking=*/true);
  line.all_reduce({&there, 1}, ReduceOp::kSum);
  if (cuts_ != nullptr) cuts_->add_up(static_cast<int>(copy_), there);
  numbers = there.to(numbers.device());
}

// Returns the context with the factor of clipping the gradient of a parameter.
StepContext ShardUpdate::clipped(std::size_t parameter, StepContext context) const {
  const double clipnorm = rule_.gradient().clipnorm;
  if (clipnorm <= 0.0) return context;
  context.grad_scale *= clip_factor(parameter_norms_[parameter] * context.grad_scale * context.grad_scale, clipnorm);
  return context;
}

// Returns the memory of this owner's parameters: the replica's copy, or where there are its slices alone these.
const torch::Tensor& ShardUpdate::values(std::size_t group) const {
  if (host_) return host_->values(group);
  const ParameterShards* const shards = shards_of(flat_);
  return shards != nullptr ? shards->shard(group, static_cast<int>(copy_)) : flat_.groups()[group].copies[copy_];
}

Segment ShardUpdate::segment_of(const Chunk& chunk, const std::vector<torch::Tensor>& sums, void** slots) const {
  const FlatParameter& parameter = flat_.parameters()[chunk.parameter];
  const FlatGroup& group = flat_.groups()[parameter.group];
  const std::vector<torch::Tensor>& own = slots_[parameter.group];
  for (std::size_t s = 0; s < own.size(); ++s) slots[s] = place_in(own[s], chunk.at);
  return {.dtype = group.dtype,
          .parameter = has_part_alone() ? place_in(values(parameter.group), chunk.at)
                                        : place_in(values(parameter.group), parameter.offset + chunk.begin),
          .gradient = place_in(sums[chunk.unit], chunk.in_slice),
          .slots = slots,
          .size = chunk.size,
          .treatment = parameter.treatment,
          .shape = parameter.shape,
          .strides = parameter.strides};
}

void ShardUpdate::update_by_kernels(const std::vector<torch::Tensor>& sums, const StepContext& context,
                                    Communicator& line) {
  const UpdateRule& rule = rule_.rule();
  std::vector<double> ratios;
  if (rule.needs_norms()) ratios = trust_ratios(sums, context, line);
  each_chunk([&](const Chunk& chunk, std::size_t) {
    UpdateMemory::SlotPointers slots;
    Segment segment = segment_of(chunk, sums, slots.data());
    if (!ratios.empty()) segment.trust_ratio = ratios[chunk.parameter];
    rule.update(segment, clipped(chunk.parameter, context));
  });
}

// Does the first half of a rule that needs norms of whole parameters, and returns each parameter's ratio.
std::vector<double> ShardUpdate::trust_ratios(const std::vector<torch::Tensor>& sums, const StepContext& context,
                                              Communicator& line) const {
  const UpdateRule& rule = rule_.rule();
  std::vector<SquaredNorms> of_chunks(chunks_.size());
  each_chunk([&](const Chunk& chunk, std::size_t i) {
    UpdateMemory::SlotPointers slots;
    of_chunks[i] = rule.prepare(segment_of(chunk, sums, slots.data()), clipped(chunk.parameter, context));
  });
  const std::size_t count = flat_.parameters().size();
  std::vector<double> norms(2 * count, 0.0);  // of the parameters, then of their directions
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    norms[chunks_[i].parameter] += of_chunks[i].parameter;
    norms[count + chunks_[i].parameter] += of_chunks[i].direction;
  }
  norms = sum_over(line, norms);
  std::vector<double> ratios(count, 1.0);
  for (std::size_t p = 0; p < count; ++p) {
    if (!flat_.parameters()[p].treatment.adapt) continue;
    ratios[p] = rule.trust_ratio({.parameter = norms[p], .direction = norms[count + p]});
  }
  return ratios;
}

Verdict ShardUpdate::update_by_tensors(const std::vector<torch::Tensor>& sums, const StepContext& context,
                                       Communicator& line) {
  torch::Tensor squares;
  DeviceScaling scaling;
  if (needs_norm(rule_.gradient())) {
    squares = squared_norms(sums, line);
    scaling = scaling_by_norm(squares.sum().sqrt(), rule_.gradient(), context);
    if (scaling.verdict.is_left_out()) return scaling.verdict;
  }
  const auto follows = [&](const ShardPiece& before, const ShardPiece& piece) {
    const FlatParameter& left = flat_.parameters()[before.parameter];
    const FlatParameter& right = flat_.parameters()[piece.parameter];
    if (before.unit != piece.unit || rule_.gradient().clipnorm > 0.0) return false;
    const bool alike =
        rule_.rule().one_by_one() ? is_layer(before) && is_layer(piece) : left.treatment == right.treatment;
    // All memories are a run: the gaps between parameters, which stay zero, are the same in the shard and the slice.
    const int64_t gap = right.offset + piece.begin - (left.offset + before.begin);
    return alike && gap == piece.at - before.at && gap > 0;
  };
  for (std::size_t first = 0; first < pieces_.size();) {
    std::size_t last = first;
    while (last + 1 < pieces_.size() && follows(pieces_[last], pieces_[last + 1])) ++last;
    update_pieces(pieces_[first], pieces_[last], sums, context, scaling, squares);
    first = last + 1;
  }
  return scaling.verdict;
}

// Returns the squared norm of each parameter's sum, of which the owners have parts, where the values are.
torch::Tensor ShardUpdate::squared_norms(const std::vector<torch::Tensor>& sums, Communicator& line) const {
  torch::Tensor squares = at::zeros({static_cast<int64_t>(flat_.parameters().size())},
                                    at::TensorOptions().dtype(torch::kDouble).device(values(0).device()));
  for (const ShardPiece& piece : pieces_) {
    const torch::Tensor part = sums[piece.unit].narrow(0, piece.in_slice, piece.size);
    squares.select(0, static_cast<int64_t>(piece.parameter)).add_(part.norm(2, torch::kDouble).square());
  }
  add_up(line, squares);
  return squares;
}

void ShardUpdate::update_pieces(const ShardPiece& first, const ShardPiece& last, const std::vector<torch::Tensor>& sums,
                                StepContext context, DeviceScaling scaling, const torch::Tensor& squares) {
  if (cuts_ != nullptr && rule_.rule().one_by_one()) {
    const TensorUpdate::Cut cut = cuts_->cut_of(static_cast<int>(copy_), first.parameter);
    context.add_up = cut.add_up;
    context.cut_dim = cut.dim;
    context.parts = cut.parts;
  }
  const FlatParameter& parameter = flat_.parameters()[first.parameter];
  const int64_t size = last.at + last.size - first.at;
  // A rule that takes whole parameters gets them in their shapes, others get runs of elements.
  const auto part = [&](const torch::Tensor& flat, int64_t begin) {
    torch::Tensor run = flat.narrow(0, begin, size);
    if (!rule_.rule().takes_whole() || is_layer(first)) return run;
    return run.as_strided(parameter.shape, parameter.strides, run.storage_offset());
  };
  UpdateRun run{.values = part(values(parameter.group), has_part_alone() ? first.at : parameter.offset + first.begin),
                .gradient = part(sums[first.unit], first.in_slice),
                .slots = {},
                .treatment = parameter.treatment};
  for (const torch::Tensor& slot : slots_[parameter.group]) run.slots.push_back(part(slot, first.at));
  if (is_layer(first)) {
    const LayerTables& layers = *layers_[parameter.group];
    run.layers = layers.layers(first.at, first.at + size);
    run.tables = layers.memory();
  }
  if (rule_.gradient().clipnorm > 0.0) {
    const torch::Tensor norm = squares.select(0, static_cast<int64_t>(first.parameter)).sqrt();
    scaling.factor = clip_factor(norm, rule_.gradient().clipnorm, context, {});
  }
  update_run(rule_.rule(), run, scaling, context);
}

}  // namespace cohort
