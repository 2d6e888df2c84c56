// Rendezvous: the place where the replica threads of one process meet. Everything that they do together stands on it:
// it finds out who is missing, who does something else, and who has failed, so that nobody waits for ever.
#pragma once

#include <torch/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/error_text.h"
#include "base/spin.h"
#include "cohort/communicator.h"

namespace cohort {

// The operation that a rank has come for. All ranks must bring the same.
struct CallSignature {
  std::string_view what;                        // "all_reduce"
  int detail = 0;                               // reduce op, root: whatever else must agree
  std::span<const torch::Tensor> tensors = {};  // their dtypes and shapes must agree
  bool ragged = false;                          // sizes of dimension 0 may differ

  bool matches(const CallSignature& other) const;
  // Returns a text such as "all_reduce (variant 1) of Float[3, 4], Float[4]".
  std::string describe() const;
};

// A message from one rank to another.
struct Letter {
  torch::Tensor tensor;
  int tag = 0;
};

class Rendezvous {
 public:
  // `spin`: waiters burn a core for some microseconds before they sleep; right when every rank has a core.
  Rendezvous(int size, std::chrono::milliseconds timeout, bool spin);

  int size() const { return static_cast<int>(seats_.size()); }
  // Returns the number by which messages call a rank: its number in the rendezvous that this one branches from.
  int name(int rank) const { return names_.empty() ? rank : names_[static_cast<std::size_t>(rank)]; }

  // Brings `data`, waits until every rank has come, and checks that all came for the same. Until the following
  // depart(), data(r) is what rank r brought. Throws FailedPrecondition (another signature, or a rank that has left),
  // DeadlineExceeded (names the missing ranks), Cancelled (aborted).
  void arrive(int rank, const CallSignature& signature, void* data);
  void* data(int rank) const { return seats_[static_cast<std::size_t>(rank)].data; }

  // Waits for all, between the phases of one operation. An abort does not end it: the others may still be reading what
  // this rank brought, and they will come. If one of them breaks the operation off, or does not come, this rank breaks
  // it off, too, and throws.
  void sync(int rank) { wait_for_all(rank, {}, /*abortable=*/false); }
  // Makes the last wait of an operation: afterwards nobody looks at what the others brought.
  void depart(int rank) { wait_for_all(rank, {}, /*abortable=*/false); }
  // Does a rank's part of an operation that it has arrived for, and departs. If the part throws, this rank breaks the
  // operation off.
  template <typename Part>
  void finish(int rank, const Part& part) {
    try {
      part();
    } catch (const std::exception& error) {
      break_off(rank, failure_text(rank, error_text(error)));
      throw;
    } catch (...) {
      break_off(rank, failure_text(rank, "an exception that is no std::exception"));
      throw;
    }
    depart(rank);
  }

  // Leaves a letter for another rank, without waiting for it to be taken.
  void post(int from, int to, Letter letter);
  // Waits for the next letter from a rank. Fails as arrive() does.
  Letter take(int from, int to);

  // Returns a rendezvous of some of the ranks, in this order, beside this one: what ends this one ends it, too.
  std::shared_ptr<Rendezvous> branch(std::vector<int> ranks);
  // Returns a rendezvous of the same ranks for what they do in other threads. After an abort it ends, and a new one is
  // made.
  std::shared_ptr<Rendezvous> background();

  // Takes the rank out of everything until reset(): all who wait for it fail at once, by name.
  void leave(int rank);
  // Lets the ranks in again after all have left in good order. Letters that nobody has taken are dropped.
  void reopen();

  // Fails all pending and later waits with Cancelled; the first reason stays. May be called from any thread.
  void abort(const std::string& reason);
  bool aborted() const { return aborted_.load(); }

  // Returns how often the ranks have been let in again, which tells apart what they do in one run and in another.
  uint64_t runs() const { return runs_.load(); }

  // Makes everything as new. To be called only while no rank is inside; those that wait for letters get Cancelled.
  void reset();

 private:
  struct alignas(64) Seat {
    std::atomic<uint64_t> arrived{0};
    std::atomic<bool> left{false};
    std::atomic<bool> out{false};  // it has broken an operation off
    uint64_t operation = 0;        // the arrival that began the present one
    CallSignature signature;
    void* data = nullptr;
    Patience patience;                   // of the rank's thread alone
    std::atomic<uint64_t> withdrawn{0};  // the last arrival that was taken back
  };

  struct Branch {
    std::weak_ptr<Rendezvous> meeting;
    std::vector<int> ranks;
  };

  void wait_for_all(int rank, std::string_view what, bool abortable);
  bool all_arrived(uint64_t generation) const;
  // Gives an operation up in the midst of it, for all ranks, until reset() or reopen(). Waits until no rank looks at
  // what this one brought, which may be gone when it returns.
  void break_off(int rank, const std::string& reason);
  std::string failure_text(int rank, const std::string& error) const;
  // Lets the ranks begin anew.
  void forget_operations();
  // Has a new background() made if this one has ended.
  void forget_ended_background();
  // Throws when waiting makes no sense any more.
  void check_alive(int rank, uint64_t generation, std::string_view what);
  std::string late_text(int rank, uint64_t generation, std::string_view what) const;
  // Returns whether a rank has come so far, also if it has taken that back.
  static bool has_come(const Seat& seat, uint64_t generation);
  // Takes back that the rank has come to an operation that does not take place. Returns false when nobody looks at what
  // it brought any more; true if one of the others has begun the operation, which then goes on.
  bool withdraw(int rank, uint64_t generation);
  void drop_letters();
  void wake_sleepers();
  // Calls fn(meeting, ranks) for every branch that is still there.
  template <typename Fn>
  void each_branch(const Fn& fn);

  std::vector<Seat> seats_;
  std::vector<int> names_;
  std::chrono::milliseconds timeout_;
  bool spin_;
  std::atomic<int> sleepers_{0};
  std::atomic<bool> aborted_{false};
  std::atomic<uint64_t> broken_{0};  // the arrival that began the operation that was broken off; 0: none
  std::mutex mutex_;
  std::condition_variable wake_;
  std::string reason_;
  std::string broken_reason_;
  std::map<std::pair<int, int>, std::deque<Letter>> letters_;  // [from, to]
  std::atomic<uint64_t> runs_{0};                              // the times that all ranks have been let in again
  std::atomic<bool> has_letters_{false};                       // or somebody waits for one
  std::atomic<bool> has_branches_{false};
  std::vector<Branch> branches_;
  std::shared_ptr<Rendezvous> background_;
};

}  // namespace cohort
