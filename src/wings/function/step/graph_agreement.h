// GraphAgreement: what the replicas of a process agree on before each exchange of an optimizer's gradients: whether it
// is a part of their graphs. A device that waits for another one within a graph needs the other one's graph of the same
// capture, so all of them capture together, and run their graphs together, or none does.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collective/local/rendezvous.h"

namespace cohort {

// One thread a replica. Each call is a meeting of all replicas, and each replica makes one for an exchange: by the call
// that says how it has come to it. Fails as Rendezvous::arrive() does. FailedPrecondition: another replica has come to
// the exchange of another optimizer.
class GraphAgreement {
 public:
  explicit GraphAgreement(Rendezvous& meeting) : meeting_(meeting), seats_(static_cast<std::size_t>(meeting.size())) {}
  GraphAgreement(const GraphAgreement&) = delete;
  GraphAgreement& operator=(const GraphAgreement&) = delete;

  // The replica exchanges as it is, or as a part of the host's between segments.
  void come(int local_id);
  // The replica captures, and `fits` says whether the exchange can be a part of it. Returns whether all replicas
  // capture it; otherwise it calls come() for the exchange, which is no meeting then.
  bool all_capture(int local_id, bool fits);
  // The replica is to run its graph of a set that was captured together. Returns whether all of them are; otherwise its
  // next come() or all_capture() is no meeting.
  bool all_run(int local_id, const void* set);

 private:
  enum class Way { kAsItIs, kCaptures, kRuns };
  struct Coming {
    const GraphAgreement* exchange;
    Way way;
    const void* set;
    friend bool operator==(const Coming&, const Coming&) = default;
  };
  struct alignas(64) Seat {
    std::optional<uint64_t> has_come;  // the run() in which it has come for an exchange that is still to be made
  };

  // Returns whether all replicas have come in the same way; false without a meeting if this one has come already.
  bool all_alike(int local_id, Way way, const void* set = nullptr);
  void note(int local_id);

  Rendezvous& meeting_;
  std::vector<Seat> seats_;
};

}  // namespace cohort
