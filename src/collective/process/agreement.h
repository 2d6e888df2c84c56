// Agreement: the way in which the processes of a group make sure that all do the same, and find out who is to blame
// when one of them does not come. Each operation is announced by a small message before its data; what is lost, late or
// different is reported by name.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/cluster/cluster_spec.h"
#include "collective/process/flight_recorder.h"
#include "collective/transport.h"

namespace cohort {

struct AgreementOptions {
  std::string name = "collective";  // distinguishes the group from others of the same tasks
  std::shared_ptr<Membership> membership =
      nullptr;                    // the membership whose tasks the ranks are; null: none (tests of a transport)
  std::vector<int> members = {};  // the task of each rank; empty: all tasks, in their order
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // the limit of an operation, which the transport keeps
  // A wait of this length in one operation is reported, with the ranks that have not come to it.
  std::chrono::milliseconds straggler_after = std::chrono::seconds(5);
  std::string algorithm = "auto";  // how the operations of all ranks are made of messages (levels.h)
};

class Agreement {
 public:
  // Two numbers that a rank tells the others with its announcement.
  using Numbers = std::array<int64_t, 2>;
  struct Announcement {
    uint64_t hash = 0;  // the hash of what the rank is about to do
    Numbers numbers = {};
  };
  using Announcements = std::vector<Announcement>;  // [rank]
  // An announcement that is under way.
  struct Begun;

  // `end_waits` ends the operations under way, when the group has failed.
  Agreement(Transport& transport, AgreementOptions options, std::function<void()> end_waits);
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;
  ~Agreement();

  // Carries out an operation of all ranks once all have announced the same. An exception of it that is no Error is a
  // failure of the transport and is explained: Cancelled, Unavailable or DeadlineExceeded.
  using Operation = std::function<void(const Announcements&)>;
  void perform(const std::string& what, const Numbers& mine, const Operation& operation);
  // Does the same with numbers for each rank. The operation gets those that the ranks have for this one.
  void perform_with_each(const std::string& what, const std::vector<Numbers>& mine, const Operation& operation);

  // One end of a message to a rank, or from it, on a lane. `what` is the call, `message` what both ends must agree on.
  struct Exchange {
    int peer;
    Transport::Lane lane;
    std::string what;
    std::string message;
  };
  // Carries out this end once the peer has announced the other one. May be called from any thread, but only one at a
  // time for one lane and peer.
  void exchange(const Exchange& exchange, const std::function<void()>& operation);

  // Makes the announcement alone, in two parts, with other work in between. It is begun, and finished, on every rank
  // between the same operations. The end of a group is only heard of in finish(). A begun operation has to be finished,
  // once.
  [[nodiscard]] std::shared_ptr<Begun> begin(const std::string& what, const Numbers& mine);
  std::vector<Numbers> finish(Begun& begun);

  // Fails what is under way and all that follows with Cancelled.
  void abort(const std::string& reason);
  // Returns whether an operation has failed such that none can follow.
  bool broken() const;
  // Returns why no operation can come to its end any more, without a wait; nothing while all is well.
  std::optional<std::string> failure() const;
  // Returns why an operation has met this error: the failure that the membership comes to know of, for which it waits
  // as Membership::await_failure() does, else the error.
  std::string reason_of(const std::string& error) const;

  // Returns a name such as "worker 1".
  std::string rank_name(int rank) const;
  const AgreementOptions& options() const { return options_; }
  // Returns the sizes of the groups in which the ranks exchange messages.
  const std::vector<int>& levels() const { return levels_; }
  // Returns the collectives. Those that devices carry out by themselves are noted there by whoever begins them, in the
  // same order on all ranks.
  FlightRecorder& recorder() { return collectives_; }
  const FlightRecorder& recorder() const { return collectives_; }
  // Returns the ranks that have not come to this collective, with the last one that each told of; empty without a
  // membership.
  std::string stragglers(uint64_t number) const;

 private:
  struct Ends;

  void carry_out(Begun& begun, const Operation& operation);
  // Runs and records an operation and explains its failure; `missing` names those who have not come to it.
  void run(FlightRecorder& recorder, const std::string& what, const std::function<std::string(uint64_t)>& missing,
           const std::function<void()>& operation);
  void announce(Begun& begun);
  void await(Begun& begun);
  void gather_by_levels(Begun& begun);
  void send_to_each(Begun& begun);
  void require_working() const;
  void require_same(const Begun& begun);
  [[noreturn]] void mismatch(const Exchange& exchange, uint64_t number);
  // Returns what a rank has told of itself under a key that both have; "something else" without a membership.
  std::string text_of(int rank, const std::string& key, const std::string& mine) const;
  [[noreturn]] void explain(const std::string& what, FlightRecorder::Clock::time_point begin,
                            const std::function<std::string()>& missing);
  void watch(const std::stop_token& stop);
  uint64_t report_late_collective(uint64_t& told);
  uint64_t report_late_messages() const;
  bool has_lost_a_rank() const;
  std::string position_key(int rank) const;

  Transport& transport_;
  AgreementOptions options_;
  std::vector<int> levels_;
  std::function<void()> end_waits_;
  FlightRecorder collectives_;
  FlightRecorder messages_;  // between two ranks
  uint64_t announced_ = 0;
  std::map<std::pair<int, Transport::Lane>, uint64_t> exchanged_;
  mutable std::mutex mutex_;  // guards what follows, and exchanged_
  std::optional<std::string> broken_;
  std::optional<std::string> aborted_;
  std::shared_ptr<Ends> ends_;  // the waits that the failure of the group ends
  std::jthread watcher_;
};

}  // namespace cohort
