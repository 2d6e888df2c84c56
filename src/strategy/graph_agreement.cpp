#include "strategy/graph_agreement.h"

#include <utility>

#include "cohort/trace.h"
#include "device/graph_capture.h"

namespace cohort {

void GraphAgreement::come(int local_id) {
  (void)all_alike(local_id, {.way = Way::kAsItIs});
}

bool GraphAgreement::all_capture(int local_id, bool fits) {
  if (all_alike(local_id, {.way = fits ? Way::kCaptures : Way::kAsItIs}) && fits) return true;
  note(local_id);
  return false;
}

bool GraphAgreement::all_run(int local_id, const void* set) {
  if (all_alike(local_id, {.way = Way::kRuns, .set = set})) return true;
  note(local_id);
  return false;
}

void GraphAgreement::note(int local_id) {
  seats_[static_cast<std::size_t>(local_id)].has_come = meeting_.runs();
}

// A step that failed may have left a notice of another run.
bool GraphAgreement::all_alike(int local_id, Coming mine) {
  Seat& seat = seats_[static_cast<std::size_t>(local_id)];
  if (std::exchange(seat.has_come, std::nullopt) == meeting_.runs()) return false;
  const TraceSpan span("communication", "meet the other replicas");
  const Signature exchange{.what = "the exchange of the gradients", .detail = 1};
  GraphCapture::outside([&] { meeting_.arrive(local_id, exchange, &mine); });
  bool alike = true;
  for (int other = 0; other < meeting_.size(); ++other) {
    alike = alike && *static_cast<const Coming*>(meeting_.data(other)) == mine;
  }
  meeting_.depart(local_id);
  return alike;
}

}  // namespace cohort
