#include "step/exchange/over_workers.h"

#include "base/fail.h"
#include "cohort/trace.h"
#include "strategy/worker_group.h"

namespace cohort {

OverWorkers::OverWorkers(const ExchangeParts& parts, bool overlaps) : SharedMemoryExchange(parts) {
  keep_sums();
  packs_ = gradient_packs(core_, flat_);
  hook_ = make_comm_hook(flat_, core_.plan().exchange, /*local_id=*/0);
  if (hook_ || !overlaps) return;
  std::size_t messages = 0;
  for (const auto& own : packs_) messages += own.size();
  // One message has nothing to overlap with: it leaves when backward ends.
  if (messages < 2 || !core_.workers().overlaps()) return;
  const OverlappedExchange::Workers workers{.group = core_.workers().gradients(), .wire = wire_};
  overlapped_ = std::make_unique<OverlappedExchange>(workers, flat_, replicas_, sums_, packs_);
}

void OverWorkers::backward(Replica& replica, const torch::Tensor& loss) {
  overlapped_ ? overlapped_->backward(replica.local_id(), loss) : Exchange::backward(replica, loss);
}

std::vector<torch::Tensor> OverWorkers::own_state() const {
  return hook_ ? hook_->state() : std::vector<torch::Tensor>();
}

void OverWorkers::load_own_state(std::span<const torch::Tensor> state) {
  if (hook_) hook_->load(state);
}

void OverWorkers::forget_own_state() {
  if (hook_) hook_->forget();
}

ExchangeTimeline OverWorkers::timeline() const {
  return overlapped_ ? overlapped_->timeline() : ExchangeTimeline{};
}

std::vector<torch::Tensor> OverWorkers::take(int me, const std::vector<torch::Tensor>& gradients, bool reduced) {
  if (!overlapped_ || reduced) return SharedMemoryExchange::take(me, gradients, reduced);
  overlapped_->complete(me, gradients);
  return {};
}

// The norms are those of the sums over all workers.
void OverWorkers::make_sums(int me, bool reduced) {
  if (reduced) return SharedMemoryExchange::make_sums(me, reduced);
  if (!overlapped_) add_up_range(me, reduced, [](const Chunk&, std::size_t) {});
  {
    const TraceSpan span("communication", "exchange with the other workers");
    core_.launch().sync(me);
    with_workers(me, [this] { overlapped_ ? overlapped_->wait() : exchange_packs(); });
  }
  if (!wants_norm()) return;
  update_.each_chunk(me, [&](const Chunk& chunk, std::size_t index) { keep_norm(me, chunk, index); });
}

void OverWorkers::with_workers(int me, const std::function<void()>& speak) {
  std::exception_ptr error;
  if (me == 0) {
    failed_ = false;
    try {
      speak();
    } catch (...) {
      error = std::current_exception();
      failed_ = true;
    }
  }
  core_.launch().sync(me);
  if (error) std::rethrow_exception(error);
  if (failed_) fail<Cancelled>("[optimizer] replica ", me, ": the exchange with the other workers failed");
}

void OverWorkers::exchange_packs() {
  if (hook_ && hook_->sums(update_number())) {
    return hook_->sum(core_.workers().gradients(), sums_, update_number());
  }
  for (std::size_t g = 0; g < packs_.size(); ++g) {
    for (const Pack& pack : packs_[g]) {
      wire_.all_reduce(core_.workers().gradients(), sums_[g].slice(0, pack.begin, pack.end));
    }
  }
}

std::unique_ptr<Exchange> make_over_workers_exchange(const ExchangeParts& parts) {
  return std::make_unique<OverWorkers>(parts, /*overlaps=*/true);
}

}  // namespace cohort
