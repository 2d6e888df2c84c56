// Sums that leave for other workers while backward is still running. Each bucket is added up by kernels that take
// pointers into the replicas' CPU tensors.
#include "step/exchange/overlapped.h"

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstring>

#include "base/fail.h"
#include "cohort/trace.h"
#include "ops/flush_denormals.h"
#include "ops/kernels/kernels.h"

namespace cohort {

OverlappedExchange::OverlappedExchange(const Workers& workers, FlatParameters& flat, int replicas,
                                       const std::vector<torch::Tensor>& sums,
                                       const std::vector<std::vector<Pack>>& packs)
    : workers_(workers),
      flat_(flat),
      replicas_(replicas),
      buckets_of_(flat.parameters().size()),
      given_(static_cast<std::size_t>(replicas)),
      watched_(flat, [this](int local_id, std::size_t p) { give(local_id, p, flat_.tensors(local_id)[p].grad()); }) {
  plan(sums, packs);
  begin_anew();
}

OverlappedExchange::~OverlappedExchange() {
  const std::lock_guard lock(mutex_);
  const auto under_way = [](const Bucket& bucket) { return bucket.sum && !bucket.sum->done(); };
  // The others may never come to what was begun.
  if (std::any_of(buckets_.begin(), buckets_.end(), under_way)) {
    workers_.group.abort("the optimizer was destroyed within a step");
  }
}

void OverlappedExchange::plan(const std::vector<torch::Tensor>& sums, const std::vector<std::vector<Pack>>& packs) {
  for (std::size_t g = 0; g < packs.size(); ++g) {
    for (const Pack& pack : packs[g]) {
      Bucket& bucket = buckets_.emplace_back();
      bucket.message = sums[g].slice(0, pack.begin, pack.end);
      for (const std::size_t p : flat_.groups()[g].members) {
        const FlatParameter& parameter = flat_.parameters()[p];
        const int64_t begin = std::max(pack.begin, parameter.offset);
        const int64_t end = std::min(pack.end, parameter.offset + parameter.size);
        if (begin >= end) continue;
        bucket.pieces.push_back({p, begin - parameter.offset, end - begin});
        buckets_of_[p].push_back(&bucket);
      }
    }
  }
}

void OverlappedExchange::require_well() const {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
}

void OverlappedExchange::backward(int local_id, const torch::Tensor& loss) {
  require_well();
  const Given& given = given_[static_cast<std::size_t>(local_id)];
  if (local_id == 0) backward_begin_ = Clock::now();
  try {
    watched_.run(local_id, loss);
  } catch (...) {
    const bool left = std::find(given.came.begin(), given.came.end(), 1) != given.came.end();
    const std::lock_guard lock(mutex_);
    if (left && !error_) {
      error_ = std::make_exception_ptr(FailedPrecondition(
          "[optimizer] an earlier backward failed when some of its gradients had left for the other workers"));
    }
    throw;
  }
  if (local_id == 0) backward_end_ = Clock::now();
}

void OverlappedExchange::complete(int local_id, const std::vector<torch::Tensor>& gradients) {
  require_well();
  const Given& given = given_[static_cast<std::size_t>(local_id)];
  for (std::size_t p = gradients.size(); p-- > 0;) {
    if (given.came[p] == 0) give(local_id, p, gradients[p]);
  }
}

void OverlappedExchange::give(int local_id, std::size_t parameter, const torch::Tensor& gradient) {
  const torch::NoGradGuard no_grad;
  Given& given = given_[static_cast<std::size_t>(local_id)];
  if (given.came[parameter] != 0) {
    fail<FailedPrecondition>("[optimizer] minimize: the gradient of ", flat_.parameters()[parameter].name,
                             " comes twice in one backward; take gradients() and apply_gradients() for such a loss");
  }
  given.came[parameter] = 1;
  given.gradients[parameter] = flat_.laid_out(gradient, parameter);
  for (Bucket* bucket : buckets_of_[parameter]) {
    if (--bucket->missing > 0) continue;
    add_up(*bucket);
    bucket->sent = workers_.wire.packed(bucket->message, workers_.group);
    const std::lock_guard lock(mutex_);
    bucket->ready = true;
    bucket->ready_at = Clock::now();
    send_ready();
  }
}

void OverlappedExchange::add_up(Bucket& bucket) const {
  const FlushDenormals flush;
  const torch::ScalarType dtype = bucket.message.scalar_type();
  const auto item = static_cast<int64_t>(bucket.message.element_size());
  for (const Piece& piece : bucket.pieces) {
    c10::SmallVector<const void*, 16> sources;
    for (const Given& given : given_) {
      const torch::Tensor& gradient = given.gradients[piece.parameter];
      if (gradient.defined()) sources.push_back(static_cast<const char*>(gradient.data_ptr()) + piece.begin * item);
    }
    const int64_t offset = flat_.parameters()[piece.parameter].offset + piece.begin - bucket.message.storage_offset();
    char* sum = static_cast<char*>(bucket.message.data_ptr()) + offset * item;
    if (sources.empty()) {
      std::memset(sum, 0, static_cast<std::size_t>(piece.size * item));
    } else {
      kernels::sum_into(sum, sources.data(), static_cast<int>(sources.size()), piece.size, dtype);
    }
  }
}

// Sends what is ready to the other workers, bucket by bucket in an order that is the same on all of them.
void OverlappedExchange::send_ready() {
  for (; next_ < buckets_.size() && buckets_[next_].ready && !error_; ++next_) {
    buckets_[next_].sum = workers_.group.all_reduce_async({buckets_[next_].sent}, ReduceOp::kSum);
  }
}

void OverlappedExchange::wait() {
  require_well();
  // All replicas have brought their gradients: every bucket has left.
  try {
    for (const Bucket& bucket : buckets_) {
      bucket.sum->wait();
      GradientWire::unpack(bucket.sent, bucket.message);
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
    throw;
  }
  const std::lock_guard lock(mutex_);
  if (backward_begin_ != Clock::time_point()) note_timeline();
  begin_anew();
}

void OverlappedExchange::note_timeline() {
  timeline_ = {.backward = in_seconds(backward_end_ - backward_begin_)};
  for (const Bucket& bucket : buckets_) {
    timeline_.messages.push_back({.bytes = static_cast<int64_t>(bucket.sent.nbytes()),
                                  .ready = in_seconds(bucket.ready_at - backward_begin_),
                                  .begin = in_seconds(bucket.sum->times().begin - backward_begin_),
                                  .end = in_seconds(bucket.sum->times().end - backward_begin_)});
  }
}

void OverlappedExchange::begin_anew() {
  next_ = 0;
  backward_begin_ = {};
  for (Bucket& bucket : buckets_) {
    bucket.ready = false;
    bucket.sent = torch::Tensor();
    bucket.sum.reset();
    bucket.missing = static_cast<int64_t>(bucket.pieces.size()) * replicas_;
  }
  for (Given& given : given_) {
    given.gradients.assign(buckets_of_.size(), torch::Tensor());
    given.came.assign(buckets_of_.size(), 0);
  }
}

ExchangeTimeline OverlappedExchange::timeline() const {
  const std::lock_guard lock(mutex_);
  return timeline_;
}

double ExchangeTimeline::hidden() const {
  double total = 0.0;
  double under_backward = 0.0;
  for (const Message& message : messages) {
    total += message.end - message.begin;
    under_backward += std::max(0.0, std::min(message.end, backward) - message.begin);
  }
  return total > 0.0 ? under_backward / total : 0.0;
}

}  // namespace cohort
