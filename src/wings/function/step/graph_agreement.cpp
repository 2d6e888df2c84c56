#include "wings/function/step/graph_agreement.h"

#include <utility>

#include "base/fail.h"
#include "cohort/trace.h"
#include "wings/function/device/graph_capture.h"

namespace cohort {

void GraphAgreement::come(int local_id) {
  (void)all_alike(local_id, Way::kAsItIs);
}

bool GraphAgreement::all_capture(int local_id, bool fits) {
  if (all_alike(local_id, fits ? Way::kCaptures : Way::kAsItIs) && fits) return true;
  note(local_id);
  return false;
}

bool GraphAgreement::all_run(int local_id, const void* set) {
  if (all_alike(local_id, Way::kRuns, set)) return true;
  note(local_id);
  return false;
}

void GraphAgreement::note(int local_id) {
  seats_[static_cast<std::size_t>(local_id)].has_come = meeting_.runs();
}

// A step that failed may have left a notice of another run.
bool GraphAgreement::all_alike(int local_id, Way way, const void* set) {
  Seat& seat = seats_[static_cast<std::size_t>(local_id)];
  if (std::exchange(seat.has_come, std::nullopt) == meeting_.runs()) return false;
  const TraceSpan span("communication", "meet the other replicas");
  Coming mine{.exchange = this, .way = way, .set = set};
  GraphCapture::outside([&] { meeting_.arrive(local_id, {.what = "the exchange of the gradients"}, &mine); });
  bool alike = true;
  std::optional<int> elsewhere;
  for (int other = 0; other < meeting_.size(); ++other) {
    const Coming& theirs = *static_cast<const Coming*>(meeting_.data(other));
    if (theirs.exchange != this) elsewhere = other;
    alike = alike && theirs == mine;
  }
  meeting_.depart(local_id);
  if (!elsewhere) return alike;
  fail<FailedPrecondition>("[optimizer] minimize: replicas ", local_id, " and ", *elsewhere,
                           " update the parameters of different optimizers at the same time; all have to step their ",
                           "optimizers in the same order");
}

}  // namespace cohort
