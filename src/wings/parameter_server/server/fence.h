// ServerFence: decides which orders and calls one process of a parameter server accepts: by the epoch of the
// coordinator that gives them, the view and term to which they belong, and the process that they are meant for. It has
// no clock, socket or thread. docs/reliability.md has the protocol.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "messages.pb.h"
#include "wings/parameter_server/known_numbers.h"

namespace cohort {

// Not thread-safe.
class ServerFence {
 public:
  using View = parameter_server::View;
  using Home = View::Home;
  using Order = parameter_server::Order;

  // Makes the fence of a server's process, which draws `process` at its start. `name` is the server's in messages.
  ServerFence(int server, uint64_t process, std::string name)
      : server_(server), process_(process), name_(std::move(name)) {}

  uint64_t process() const { return process_; }
  // Returns the latest epoch of a coordinator that was heard of.
  uint64_t epoch() const { return epoch_; }
  const View& view() const { return view_; }

  // Returns whether the coordinator that gives an order is the one that is known to be in charge; false: it is a later
  // one, and has to be noted. FailedPrecondition: a later one is in charge. Unavailable: the order is for another
  // process.
  bool is_in_charge(const Order& order) const;
  // Checks an order in the same way and notes its coordinator. From then on nothing is served in an earlier one's view.
  void obey(const Order& order);

  // Returns whether a view is later than the present one; false: it is the present one. FailedPrecondition: it is an
  // earlier one, or another one with the same epoch and number.
  bool is_later(const View& view) const;
  // Returns whether what this process has of a home, or has been sent of it, is of use in a later view.
  bool stays(const View& later, int home) const;
  void take(const View& view) { view_ = view; }

  // Return whether this process has the shards of a home, as its primary or its backup, or is being given them.
  bool has(const Home& home) const {
    return is_me(home.primary(), home.primary_process()) || is_me(home.backup(), home.backup_process());
  }
  bool joins(const Home& home) const { return is_me(home.joining(), home.joining_process()); }

  // The next functions throw Unavailable if a call does not belong to the present view.

  void require_view(uint64_t epoch, uint64_t number) const;
  // Returns the home, of which this process has to be the primary.
  const Home& require_primary(int home) const;
  // Checks an order to fill a home: the coordinator's (term 0), or what a primary copies in that term. Its serial grows
  // with each attempt, so that what was given up and arrives late is told from what is wanted.
  void require_fill(const Order& order, int home, uint64_t term);
  // Checks an order to copy a home, and returns that home.
  const Home& require_copy(const Order& order, int home, uint64_t term) const;
  // Checks an update that a primary passes on. Returns false if it is not for this server.
  bool require_backup(int home) const;

  // Adds everything that its decisions depend on.
  void put_in(KnownNumbers& numbers) const;

 private:
  bool is_me(int server, uint64_t process) const { return server == server_ && process == process_; }
  bool is_home(int home) const { return home >= 0 && home < view_.homes_size(); }

  const int server_;
  const uint64_t process_;
  const std::string name_;
  uint64_t epoch_ = 0;
  View view_;
  std::map<int, std::tuple<uint64_t, uint64_t, uint64_t>> fills_;  // the last epoch, term and serial, by home
};

}  // namespace cohort
