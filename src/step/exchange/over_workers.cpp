// Replicas that share memory, in several processes: the sums of this process (shared_memory.h) are kept and go on over
// all workers, in packs. They leave after backward, or where the workers overlap the two and there is more than one
// pack, while backward still makes the gradients of the layers before (overlapped.h).
#include "base/fail.h"
#include "cohort/trace.h"
#include "step/exchange/overlapped.h"
#include "step/exchange/power_sgd.h"
#include "step/exchange/shared_memory.h"
#include "strategy/worker_group.h"

namespace cohort {

namespace {

class OverWorkers final : public SharedMemoryExchange {
 public:
  explicit OverWorkers(const ExchangeParts& parts) : SharedMemoryExchange(parts) {
    keep_sums();
    packs_ = gradient_packs(core_, flat_);
    if (wire_.approximates()) {
      power_sgd_.emplace(flat_, core_.plan().exchange.power_sgd, /*local_id=*/0);
      return;
    }
    std::size_t messages = 0;
    for (const auto& own : packs_) messages += own.size();
    // One message has nothing to overlap with: it leaves when backward ends.
    if (messages < 2 || !core_.workers().overlaps()) return;
    const OverlappedExchange::Workers workers{.group = core_.workers().gradients(), .wire = wire_};
    overlapped_ = std::make_unique<OverlappedExchange>(workers, flat_, replicas_, sums_, packs_);
  }

  void backward(Replica& replica, const torch::Tensor& loss) override {
    overlapped_ ? overlapped_->backward(replica.local_id(), loss) : loss.backward();
  }
  std::vector<torch::Tensor> own_state() const override {
    return power_sgd_ ? power_sgd_->state() : std::vector<torch::Tensor>();
  }
  void load_own_state(std::span<const torch::Tensor> state) override {
    if (power_sgd_) power_sgd_->load(state);
  }
  void forget_own_state() override {
    if (power_sgd_) power_sgd_->forget();
  }
  ExchangeTimeline timeline() const override { return overlapped_ ? overlapped_->timeline() : ExchangeTimeline{}; }

 protected:
  std::vector<torch::Tensor> take(int me, const std::vector<torch::Tensor>& gradients, bool reduced) override {
    if (!overlapped_ || reduced) return SharedMemoryExchange::take(me, gradients, reduced);
    overlapped_->complete(me, gradients);
    return {};
  }

  // The norms are those of the sums over all workers.
  void make_sums(int me, bool reduced) override {
    if (reduced) return SharedMemoryExchange::make_sums(me, reduced);
    if (!overlapped_) add_up_range(me, reduced, [](const Chunk&, std::size_t) {});
    exchange(me);
    if (!wants_norm()) return;
    update_.each_chunk(me, [&](const Chunk& chunk, std::size_t index) { keep_norm(me, chunk, index); });
  }

 private:
  // Makes the sums of this worker's replicas those of all workers'. A failure here must not keep the other replicas
  // waiting: they come to the second meeting, and all throw.
  void exchange(int me) {
    const TraceSpan span("communication", "exchange with the other workers");
    core_.launch().sync(me);
    std::exception_ptr error;
    if (me == 0) {
      failed_ = false;
      try {
        overlapped_ ? overlapped_->wait() : exchange_packs();
      } catch (...) {
        error = std::current_exception();
        failed_ = true;
      }
    }
    core_.launch().sync(me);
    if (error) std::rethrow_exception(error);
    if (failed_) fail<Cancelled>("[optimizer] replica ", me, ": the exchange with the other workers failed");
  }

  void exchange_packs() {
    if (power_sgd_ && power_sgd_->approximates(update_number())) {
      return power_sgd_->sum(core_.workers().gradients(), sums_, update_number());
    }
    for (std::size_t g = 0; g < packs_.size(); ++g) {
      for (const Pack& pack : packs_[g]) {
        wire_.all_reduce(core_.workers().gradients(), sums_[g].slice(0, pack.begin, pack.end));
      }
    }
  }

  std::vector<std::vector<Pack>> packs_;            // [group]: the messages to other workers
  std::unique_ptr<OverlappedExchange> overlapped_;  // null: they leave after backward
  std::optional<PowerSgd> power_sgd_;               // nothing: the messages have the gradients themselves
  bool failed_ = false;                             // the exchange of this step; written between two meetings
};

}  // namespace

std::unique_ptr<Exchange> make_over_workers_exchange(const ExchangeParts& parts) {
  return std::make_unique<OverWorkers>(parts);
}

}  // namespace cohort
