// A shard's values and slots lie in a server's memory on the CPU. Updates of rows take pointers into them.
#include "wings/parameter_server/server/shard.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <functional>
#include <mutex>

#include "base/fail.h"
#include "base/parallel.h"
#include "ops/flush_denormals.h"
#include "ops/kernels/kernels.h"
#include "step/scaling.h"
#include "wings/parameter_server/rows.h"

namespace cohort {

namespace {

// Returns how many rows of `width` elements a thread needs before a further thread is worth waking.
int64_t rows_a_thread(int64_t width) {
  return std::max<int64_t>(kUpdateChunk * kChunksAThread / std::max<int64_t>(width, 1), 1);
}

std::byte* address_of(const torch::Tensor& tensor, int64_t element) {
  return static_cast<std::byte*>(tensor.data_ptr()) + element * static_cast<int64_t>(tensor.element_size());
}

// The positions of `indices`, sorted by the index and in their order where it is equal, and the beginning of each
// index.
struct Grouping {
  std::vector<std::pair<int64_t, int64_t>> order;  // pairs of index and position
  std::vector<std::size_t> begins;                 // one entry more than there are different indices
};

Grouping group_by_index(const torch::Tensor& indices) {
  Grouping result;
  const auto* index = indices.data_ptr<int64_t>();
  for (int64_t i = 0; i < indices.numel(); ++i) result.order.emplace_back(index[i], i);
  std::sort(result.order.begin(), result.order.end());
  for (std::size_t i = 0; i < result.order.size(); ++i) {
    if (i == 0 || result.order[i].first != result.order[i - 1].first) result.begins.push_back(i);
  }
  result.begins.push_back(result.order.size());
  return result;
}

bool is_ascending(const torch::Tensor& indices) {
  const auto* index = indices.data_ptr<int64_t>();
  return std::adjacent_find(index, index + indices.numel(), std::greater_equal<>()) == index + indices.numel();
}

}  // namespace

Shard::Shard(ShardSpec spec, const torch::Tensor& value, Optimizer optimizer)
    : spec_(std::move(spec)),
      optimizer_(std::move(optimizer)),
      width_(spec_.shape.empty() ? 1 : c10::multiply_integers(spec_.shape.begin() + 1, spec_.shape.end())),
      learning_rate_(optimizer_.learning_rate()) {
  require_like_value("its first value", value);
  value_ = value.detach();
  if (!spec_.trainable) return;
  const UpdateRule& rule = optimizer_.rule();
  if (!kernels::has_kernels(spec_.dtype)) {
    fail<InvalidArgument>("[parameter server] ", spec_.name, " is trained, so it must be float32 or float64, not ",
                          spec_.dtype);
  }
  if (rule.one_by_one() && spec_.has_siblings) {
    fail<InvalidArgument>("[parameter server] ", spec_.name, " is a part of a variable, and ", rule.name(),
                          " needs the whole: leave it uncut");
  }
  for (std::size_t slot = 0; slot < rule.slots().size(); ++slot) {
    slots_.push_back(torch::full(spec_.shape, rule.initial_slot_value(slot), spec_.dtype));
  }
  memory_ = UpdateMemory(value_, slots_);
}

int64_t Shard::version() const {
  const std::shared_lock lock(mutex_);
  return version_;
}

int64_t Shard::iterations() const {
  const std::shared_lock lock(mutex_);
  return iterations_;
}

void Shard::require_like_value(const char* what, const torch::Tensor& tensor) const {
  if (tensor.defined() && tensor.sizes() == c10::IntArrayRef(spec_.shape) && tensor.scalar_type() == spec_.dtype &&
      tensor.is_cpu() && tensor.is_contiguous()) {
    return;
  }
  fail<InvalidArgument>("[parameter server] ", spec_.name, ": ", what, " must be contiguous, ", spec_.dtype,
                        c10::IntArrayRef(spec_.shape), ", got ",
                        tensor.defined() ? c10::str(tensor.scalar_type(), tensor.sizes()) : std::string("nothing"));
}

void Shard::require_trainable(const char* what) const {
  if (spec_.trainable) return;
  fail<InvalidArgument>("[parameter server] ", spec_.name, " is not trained, but ", what, " came for it");
}

void Shard::require_rows(const char* what, const torch::Tensor& indices) const {
  if (spec_.shape.empty()) fail<InvalidArgument>("[parameter server] ", spec_.name, " is a scalar: it has no rows");
  if (!indices.defined() || indices.scalar_type() != torch::kLong || indices.dim() != 1 || !indices.is_cpu() ||
      !indices.is_contiguous()) {
    fail<InvalidArgument>("[parameter server] ", spec_.name, ": ", what,
                          ": the indices must be contiguous int64 of one ", "dimension");
  }
  const auto* index = indices.data_ptr<int64_t>();
  for (int64_t i = 0; i < indices.numel(); ++i) {
    if (index[i] >= 0 && index[i] < spec_.shape[0]) continue;
    fail<InvalidArgument>("[parameter server] ", spec_.name, ": ", what, ": row ", index[i], " came, there are ",
                          spec_.shape[0]);
  }
}

void Shard::require_gradient_rows(const torch::Tensor& indices, const torch::Tensor& rows) const {
  require_trainable("a gradient of rows");
  require_rows("a gradient", indices);
  if (optimizer_.rule().one_by_one() || optimizer_.rule().keeps_averages()) {
    fail<InvalidArgument>(
        "[parameter server] ", spec_.name, ": ", optimizer_.name(),
        optimizer_.rule().one_by_one() ? " needs the whole gradient" : " with use_ema needs whole updates",
        ", but a gradient of rows came");
  }
  if (rows.defined() && rows.scalar_type() == spec_.dtype && rows.is_cpu() && rows.is_contiguous() &&
      rows.numel() == indices.numel() * width_) {
    return;
  }
  fail<InvalidArgument>("[parameter server] ", spec_.name, ": a gradient of ", indices.numel(),
                        " rows must be contiguous, ", spec_.dtype, ", of ", indices.numel() * width_, " elements, got ",
                        rows.defined() ? c10::str(rows.scalar_type(), rows.sizes()) : std::string("nothing"));
}

// Checks the pending gradients of another server as those of a worker are checked.
void Shard::require_pending(const PendingSteps::Part& part) const {
  if (part.size() == 2) return require_gradient_rows(part[0], part[1]);
  require_trainable("a gradient");
  require_like_value("a gradient", part[0]);
}

// Applies an update once. It is noted when it was applied whole; a change that throws has changed nothing. `change`
// returns whether the value is different now.
template <typename Change>
bool Shard::change(const UpdateId& id, const Change& change) {
  const std::unique_lock lock(mutex_);
  if (log_.has(id)) return false;
  const torch::NoGradGuard no_grad;
  if (change()) ++version_;
  log_.add(id);
  return true;
}

void Shard::require_share(const Share& share) const {
  if (share.count >= 1 && share.index >= 0 && share.index < share.count) return;
  fail<InvalidArgument>("[parameter server] ", spec_.name, ": a gradient is share ", share.index, " of ", share.count);
}

StepContext Shard::next_step() const {
  return step_context(optimizer_.gradient(), learning_rate_, iterations_);
}

bool Shard::apply_gradient(const UpdateId& id, const torch::Tensor& gradient, const Share& share) {
  require_trainable("a gradient");
  require_like_value("a gradient", gradient);
  require_share(share);
  return change(id, [&] {
    const auto whole = share.count == 1 ? std::vector{gradient} : pending_.add(id, share, {gradient});
    if (!whole) return false;
    const torch::Tensor& sum = whole->front();
    update_in_chunks(optimizer_.rule(), memory_, spec_.shape, sum.data_ptr(), spec_.treatment, next_step());
    ++iterations_;
    return true;
  });
}

bool Shard::apply_rows(const UpdateId& id, const torch::Tensor& indices, const torch::Tensor& rows,
                       const Share& share) {
  require_share(share);
  require_gradient_rows(indices, rows);
  const PendingSteps::Part part = {indices, rows.view({indices.numel(), width_})};
  return change(id, [&] {
    const auto whole = share.count == 1 ? std::optional(part) : pending_.add(id, share, part);
    if (!whole) return false;
    step_rows((*whole)[0], (*whole)[1], next_step());
    ++iterations_;
    return true;
  });
}

void Shard::step_rows(const torch::Tensor& indices, const torch::Tensor& rows, const StepContext& context) {
  if (is_ascending(indices)) return step_ascending_rows(indices, rows, context);
  const Grouping groups = group_by_index(indices);
  const auto count = static_cast<int64_t>(groups.begins.size()) - 1;
  parallel_for(count, rows_a_thread(width_), [&](int64_t from, int64_t to) {
    const FlushDenormals flush;
    UpdateMemory::SlotPointers slots;
    std::vector<const void*> sources;
    const torch::Tensor scratch = torch::empty({width_}, spec_.dtype);
    for (auto group = static_cast<std::size_t>(from); group < static_cast<std::size_t>(to); ++group) {
      sources.clear();
      for (std::size_t i = groups.begins[group]; i < groups.begins[group + 1]; ++i) {
        sources.push_back(address_of(rows, groups.order[i].second * width_));
      }
      void* gradient = const_cast<void*>(sources.front());
      if (sources.size() > 1) {
        gradient = scratch.data_ptr();
        kernels::sum_into(gradient, sources.data(), static_cast<int>(sources.size()), width_, spec_.dtype);
      }
      const int64_t row = groups.order[groups.begins[group]].first;
      optimizer_.rule().update(memory_.segment(row * width_, width_, gradient, spec_.treatment, slots), context);
    }
  });
}

// Updates rows as clients send them, ascending and each row once.
void Shard::step_ascending_rows(const torch::Tensor& indices, const torch::Tensor& rows, const StepContext& context) {
  const auto* index = indices.data_ptr<int64_t>();
  const auto element = static_cast<int64_t>(c10::elementSize(spec_.dtype));
  auto* const gradients = static_cast<std::byte*>(rows.data_ptr());
  parallel_for(indices.numel(), rows_a_thread(width_), [&](int64_t from, int64_t to) {
    const FlushDenormals flush;
    UpdateMemory::SlotPointers slots;
    for (int64_t i = from; i < to; ++i) {
      if (i + kRowsAhead < to) {
        const int64_t next = index[i + kRowsAhead] * width_;
        prefetch(address_of(value_, next), width_ * element);
        for (const torch::Tensor& slot : slots_) prefetch(address_of(slot, next), width_ * element);
      }
      optimizer_.rule().update(
          memory_.segment(index[i] * width_, width_, gradients + i * width_ * element, spec_.treatment, slots),
          context);
    }
  });
}

bool Shard::assign(const UpdateId& id, const torch::Tensor& value) {
  require_like_value("a value", value);
  return change(id, [&] {
    value_.copy_(value);
    return true;
  });
}

bool Shard::add(const UpdateId& id, const torch::Tensor& delta) {
  require_like_value("what is added", delta);
  return change(id, [&] {
    value_.add_(delta);
    return true;
  });
}

std::optional<Shard::Value> Shard::read(int64_t known) const {
  const std::shared_lock lock(mutex_);
  if (version_ == known) return std::nullopt;
  return Value{.value = value_.clone(), .version = version_};
}

torch::Tensor Shard::read_rows(const torch::Tensor& indices) const {
  require_rows("a lookup", indices);
  const std::shared_lock lock(mutex_);
  return gather_rows(value_, indices);
}

bool Shard::has_update(const UpdateId& id) const {
  const std::shared_lock lock(mutex_);
  return log_.has(id);
}

void Shard::forget_updates_below(int64_t closure) {
  const std::unique_lock lock(mutex_);
  log_.forget_below(closure);
}

void Shard::set_learning_rate(double rate) {
  const std::unique_lock lock(mutex_);
  learning_rate_ = rate;
}

torch::Tensor Shard::rows_of(const torch::Tensor& whole, int64_t first, int64_t count) const {
  const torch::Tensor rows = spec_.shape.empty() ? whole.view({1}) : whole;
  if (first < 0 || count < 0 || first > num_rows() - count) {
    fail<InvalidArgument>("[parameter server] ", spec_.name, ": ", count, " rows from row ", first,
                          " on were asked for, there are ", num_rows());
  }
  return rows.narrow(0, first, count);
}

int64_t Shard::row_bytes() const {
  return width_ * static_cast<int64_t>(c10::elementSize(spec_.dtype) * (1 + slots_.size()));
}

Shard::Snapshot Shard::snapshot() const {
  return Snapshot(*this);
}

std::vector<torch::Tensor> Shard::Snapshot::rows(int64_t first, int64_t count) const {
  std::vector<torch::Tensor> list = {shard_.rows_of(shard_.value_, first, count)};
  for (const torch::Tensor& slot : shard_.slots_) list.push_back(shard_.rows_of(slot, first, count));
  return list;
}

std::vector<torch::Tensor> Shard::Snapshot::progress() const {
  std::vector<torch::Tensor> list = {torch::tensor({shard_.version_, shard_.iterations_}, torch::kLong),
                                     shard_.log_.state()};
  for (const torch::Tensor& tensor : shard_.pending_.state()) list.push_back(tensor);
  return list;
}

void Shard::load_rows(int64_t first, const std::vector<torch::Tensor>& tensors) {
  if (tensors.size() != 1 + slots_.size()) {
    fail<InvalidArgument>("[parameter server] ", spec_.name, ": ", tensors.size(),
                          " tensors came for its rows, wanted ", 1 + slots_.size());
  }
  const std::unique_lock lock(mutex_);
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> homes;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const torch::Tensor& tensor = tensors[i];
    if (tensor.dim() == 0) fail<InvalidArgument>("[parameter server] ", spec_.name, ": a scalar came for its rows");
    homes.push_back(rows_of(i == 0 ? value_ : slots_[i - 1], first, tensor.size(0)));
    if (tensor.sizes() == homes.back().sizes() && tensor.scalar_type() == spec_.dtype) continue;
    fail<InvalidArgument>("[parameter server] ", spec_.name, ": rows of ", tensor.scalar_type(), tensor.sizes(),
                          " came, wanted ", spec_.dtype, homes.back().sizes());
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) homes[i].copy_(tensors[i]);
  ++version_;
}

void Shard::load_progress(const std::vector<torch::Tensor>& tensors) {
  if (tensors.size() < 2 || tensors[0].scalar_type() != torch::kLong || tensors[0].numel() != 2) {
    fail<InvalidArgument>("[parameter server] ", spec_.name, ": what came is no progress of a shard");
  }
  const torch::Tensor counts = tensors[0].reshape({-1});
  const auto version = counts[0].item<int64_t>();
  const auto iterations = counts[1].item<int64_t>();
  constexpr int64_t kMost = INT64_MAX / 2;  // both counters go on from here
  if (version < 0 || version > kMost || iterations < 0 || iterations > kMost) {
    fail<InvalidArgument>("[parameter server] ", spec_.name, ": ", version, " changes and ", iterations,
                          " steps came as its progress");
  }
  UpdateLog log;
  log.load_state(tensors[1]);
  PendingSteps pending;
  pending.load_state({tensors.begin() + 2, tensors.end()}, [this](const auto& part) { require_pending(part); });

  const std::unique_lock lock(mutex_);
  version_ = version;
  iterations_ = iterations;
  log_ = std::move(log);
  pending_ = std::move(pending);
}

}  // namespace cohort
