// Replicas that share memory, in several processes: the sums of this process (shared_memory.h) are kept and go on over
// all workers, in packs. They leave after backward, or where the workers overlap the two and there is more than one
// pack, while backward still makes the gradients of the layers before (overlapped.h).
#include "base/fail.h"
#include "cohort/trace.h"
#include "step/exchange/comm_hook.h"
#include "step/exchange/outer_step.h"
#include "step/exchange/overlapped.h"
#include "step/exchange/shared_memory.h"
#include "strategy/worker_group.h"

namespace cohort {

namespace {

class OverWorkers final : public SharedMemoryExchange {
 public:
  explicit OverWorkers(const ExchangeParts& parts) : SharedMemoryExchange(parts) {
    keep_sums();
    packs_ = gradient_packs(core_, flat_);
    hook_ = make_comm_hook(flat_, core_.plan().exchange, /*local_id=*/0);
    if (hook_) return;
    if (const LocalSgdOptions& local = core_.plan().local_sgd; local.sync_every > 0) {
      outer_.emplace(flat_, local, core_.num_workers());
      return;
    }
    std::size_t messages = 0;
    for (const auto& own : packs_) messages += own.size();
    // One message has nothing to overlap with: it leaves when backward ends.
    if (messages < 2 || !core_.workers().overlaps()) return;
    const OverlappedExchange::Workers workers{.group = core_.workers().gradients(), .wire = wire_};
    overlapped_ = std::make_unique<OverlappedExchange>(workers, flat_, replicas_, sums_, packs_);
  }

  Verdict step(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced, StepContext context) override {
    const int me = replica.local_id();
    if (!outer_ || !outer_->is_local(context.step)) {
      return SharedMemoryExchange::step(replica, std::move(gradients), reduced, context);
    }
    if (me == 0) outer_->begin();
    // A loss is a share of the mean over the examples of all workers.
    if (!reduced) context.grad_scale *= core_.num_workers();
    Verdict verdict = SharedMemoryExchange::step(replica, std::move(gradients), reduced, context);
    if (outer_->ends(context.step)) {
      const TraceSpan span("communication", "exchange of the parameters with the other workers");
      core_.launch().arrive(me, "the exchange of the parameters");
      with_workers(me, [this] { outer_->bring_together(sums_, [this] { exchange_packs(); }); });
      take_first(me);
      core_.launch().depart(me);
    }
    return verdict;
  }

  void bring_together() override {
    if (!outer_ || !core_.any_worker("bring parameters together", outer_->is_apart())) return;
    outer_->begin();
    outer_->bring_together(sums_, [this] { exchange_packs(); });
    for (int r = 1; r < replicas_; ++r) take_first(r);
  }

  void backward(Replica& replica, const torch::Tensor& loss) override {
    overlapped_ ? overlapped_->backward(replica.local_id(), loss) : Exchange::backward(replica, loss);
  }
  std::vector<torch::Tensor> own_state() const override {
    if (hook_) return hook_->state();
    return outer_ ? local_state() : std::vector<torch::Tensor>();
  }
  void load_own_state(std::span<const torch::Tensor> state) override {
    if (hook_) hook_->load(state);
    if (outer_) load_local_state(state);
  }
  void forget_own_state() override {
    if (hook_) hook_->forget();
    if (outer_) outer_->forget();
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
    const bool local = outer_ && outer_->is_local(update_number());
    if (reduced || local) return SharedMemoryExchange::make_sums(me, reduced);
    if (!overlapped_) add_up_range(me, reduced, [](const Chunk&, std::size_t) {});
    exchange(me);
    if (!wants_norm()) return;
    update_.each_chunk(me, [&](const Chunk& chunk, std::size_t index) { keep_norm(me, chunk, index); });
  }

 private:
  // Makes the sums of this worker's replicas those of all workers'.
  void exchange(int me) {
    const TraceSpan span("communication", "exchange with the other workers");
    core_.launch().sync(me);
    with_workers(me, [this] { overlapped_ ? overlapped_->wait() : exchange_packs(); });
  }

  // Has the first replica speak with the other workers while its own wait. A failure must not keep these waiting: they
  // come to the meeting, and all throw.
  void with_workers(int me, const std::function<void()>& speak) {
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

  // Gives a replica the first one's parameters.
  void take_first(int me) const {
    for (const FlatGroup& group : flat_.groups()) {
      if (me != 0) group.copies[static_cast<std::size_t>(me)].copy_(group.copies.front());
    }
  }

  // The parameters and slots that this worker alone has, and the state of the outer step.
  std::vector<torch::Tensor> local_state() const {
    std::vector<torch::Tensor> list = outer_->state();
    for (std::size_t g = 0; g < flat_.groups().size(); ++g) {
      list.push_back(flat_.groups()[g].copies.front().clone());
      for (const torch::Tensor& slot : update_.slots()[g]) list.push_back(slot.clone());
    }
    return list;
  }

  void load_local_state(std::span<const torch::Tensor> state) {
    const std::size_t outer = outer_->state().size();
    outer_->load(state.first(outer));
    auto next = state.begin() + static_cast<std::ptrdiff_t>(outer);
    const auto put = [&](torch::Tensor home) {
      if (next->sizes() != home.sizes()) {
        fail<InvalidArgument>("[optimizer] load_accumulated: a worker's own parameters or slots have shape ",
                              next->sizes(), ", wanted ", home.sizes());
      }
      home.copy_(*next++);
    };
    for (std::size_t g = 0; g < flat_.groups().size(); ++g) {
      put(flat_.groups()[g].copies.front());
      for (const torch::Tensor& slot : update_.slots()[g]) put(slot);
    }
    for (int r = 1; r < replicas_; ++r) take_first(r);
  }

  void exchange_packs() {
    if (hook_ && hook_->sums(update_number())) {
      return hook_->sum(core_.workers().gradients(), sums_, update_number());
    }
    for (std::size_t g = 0; g < packs_.size(); ++g) {
      for (const Pack& pack : packs_[g]) {
        wire_.all_reduce(core_.workers().gradients(), sums_[g].slice(0, pack.begin, pack.end));
      }
    }
  }

  std::vector<std::vector<Pack>> packs_;            // [group]: the messages to other workers
  std::unique_ptr<OverlappedExchange> overlapped_;  // null: they leave after backward
  std::optional<OuterStep> outer_;                  // nothing: gradients are exchanged in every step
  std::unique_ptr<CommHook> hook_;                  // null: the messages have the gradients themselves
  bool failed_ = false;                             // the exchange of this step; written between two meetings
};

}  // namespace

std::unique_ptr<Exchange> make_over_workers_exchange(const ExchangeParts& parts) {
  return std::make_unique<OverWorkers>(parts);
}

}  // namespace cohort
