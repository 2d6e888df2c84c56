// HomeTransfers: gives homes their shards, from what was saved or from the home's primary. The keeper decides which.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "base/deadline.h"
#include "messages.pb.h"
#include "wings/parameter_server/catalog.h"
#include "wings/parameter_server/client/client.h"
#include "wings/parameter_server/client/saved_variables.h"
#include "wings/parameter_server/coordinator/keeper_options.h"
#include "wings/parameter_server/coordinator/roster.h"

namespace cohort {

class HomeTransfers {
 public:
  HomeTransfers(std::shared_ptr<const Catalog> catalog, ServerClient& client, const KeeperOptions& options)
      : catalog_(std::move(catalog)), client_(client), options_(options) {}

  // The values that homes are filled with, and the first closure that is not contained in them. Thread-safe.
  void set_source(std::shared_ptr<const SavedVariables> saved, int64_t next_closure);
  int64_t source_closure() const;

  // The next ones are for one thread.

  // Gives a server the shards of a home, by this order. Returns the closure from which work is not contained in them.
  int64_t fill(int home, int server, parameter_server::Order order);
  // Lets the copy of a home go on for a moment, by an order to its primary. Returns whether it is done.
  // DeadlineExceeded: nothing of it was sent for options.call_timeout.
  bool copy(const RosterAction& action, int primary, const parameter_server::Order& order);

 private:
  const std::shared_ptr<const Catalog> catalog_;
  ServerClient& client_;
  const KeeperOptions& options_;
  mutable std::mutex mutex_;
  std::shared_ptr<const SavedVariables> source_;
  int64_t source_closure_ = 0;
  uint64_t fills_ = 0;                  // the number of attempts to fill a home
  RosterAction copy_;                   // the copy under way
  uint64_t copied_ = 0;                 // the bytes of it that have been sent
  std::optional<Deadline> copy_until_;  // the end of the wait for more of them
};

}  // namespace cohort
