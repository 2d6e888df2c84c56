#include "wings/function/step/communicator_in_graphs.h"

namespace cohort {

CommunicatorInGraphs::CommunicatorInGraphs(CommunicatorExchange& exchange)
    : exchange_(exchange), agreement_(std::make_shared<GraphAgreement>(exchange.core().rendezvous())) {
  DeviceBuckets* const buckets = exchange.buckets();
  if (buckets == nullptr || !buckets->sums()->fits_graphs()) return;
  buckets_ = std::make_unique<BucketsInGraphs>(exchange.core(), *buckets, agreement_);
}

CommunicatorInGraphs* CommunicatorInGraphs::of(const Exchange& exchange) {
  const auto* const by_messages = dynamic_cast<const CommunicatorExchange*>(&exchange);
  if (by_messages == nullptr) return nullptr;
  const auto* const own = std::any_cast<std::shared_ptr<CommunicatorInGraphs>>(&by_messages->in_graphs().own);
  return own == nullptr ? nullptr : own->get();
}

void CommunicatorInGraphs::come(int local_id) {
  if (buckets_ || exchange_.core().optimizers().several()) agreement_->come(local_id);
}

std::optional<std::vector<double>> CommunicatorInGraphs::graph_numbers(int local_id, const StepContext& context) const {
  const TensorUpdate& update = exchange_.update(local_id);
  if (exchange_.takes_other_messages() || !update.reads_numbers()) return std::nullopt;
  return update.numbers(context);
}

// Returns whether the exchange is a part of the graphs that all replicas capture. Once graphs have one they agree on
// each run before it begins; behind a part of the host's that comes too late.
bool CommunicatorInGraphs::all_capture(const GraphCapture& capture, int me) {
  const bool agrees_first = capture.segments() == 0 || capture.has_joined();
  return agreement_->all_capture(me, agrees_first && buckets_->is_planned());
}

// A segment has one exchange within at most, so that all replicas have as many of them.
Verdict CommunicatorInGraphs::step_in_graph(GraphCapture& capture, Replica& replica, const CapturedStep& step) {
  const torch::NoGradGuard no_grad;
  const int me = replica.local_id();
  const bool sums = !step.reduced && exchange_.sends();
  if (sums && capture.has_company()) capture.part({.act = [] {}});
  const bool within = sums && buckets_ && all_capture(capture, me);
  if (DeviceBuckets* const buckets = exchange_.buckets()) {
    const auto begin = [buckets, me, within] { within ? buckets->begin_apart(me) : buckets->begin_step(me); };
    capture.before({.act = begin, .owner = step.owner});
  }
  exchange_.gradients().pack(me, step.gradients);
  Verdict verdict = true;
  const auto update = [&] {
    verdict = exchange_.update(me).update(exchange_.gradients().of(me), step.context, {}, step.numbers);
    step.note(verdict);
  };
  if (within) {
    buckets_->update(capture, me, update, {step.numbers});
    return verdict;
  }
  if (sums) {
    const auto sum = [&exchange = exchange_, &replica] { exchange.sum_packed(replica); };
    capture.part({.act = sum, .owner = step.owner});
  }
  update();
  return verdict;
}

ExchangeInGraphs make_communicator_in_graphs(CommunicatorExchange& exchange) {
  const auto own = std::make_shared<CommunicatorInGraphs>(exchange);
  return {.come = [own](int local_id) { own->come(local_id); }, .own = own};
}

}  // namespace cohort
