#include "wings/parameter_server/server/fence.h"

#include <utility>

#include "base/fail.h"

namespace cohort {

namespace {

using ViewId = std::pair<uint64_t, uint64_t>;

ViewId id_of(const ServerFence::View& view) {
  return {view.epoch(), view.number()};
}

}  // namespace

bool ServerFence::is_in_charge(const Order& order) const {
  if (order.epoch() < epoch_) {
    fail<FailedPrecondition>("[parameter server] ", name_, ": an order of epoch ", order.epoch(),
                             " came, but the coordinator of epoch ", epoch_, " is in charge");
  }
  if (order.process() != 0 && order.process() != process_) {
    fail<Unavailable>("[parameter server] ", name_, " was restarted: the order is for another process of it");
  }
  return order.epoch() == epoch_;
}

void ServerFence::obey(const Order& order) {
  if (!is_in_charge(order)) epoch_ = order.epoch();
}

bool ServerFence::is_later(const View& view) const {
  if (id_of(view) < id_of(view_)) {
    fail<FailedPrecondition>("[parameter server] ", name_, ": view ", view.number(), " came after view ",
                             view_.number());
  }
  if (id_of(view) > id_of(view_)) return true;
  if (view.SerializeAsString() == view_.SerializeAsString()) return false;
  fail<FailedPrecondition>("[parameter server] ", name_, ": there are two different views of number ", view.number(),
                           " in epoch ", view.epoch());
}

bool ServerFence::stays(const View& later, int home) const {
  if (has(later.homes(home))) return true;
  // What has arrived for a home that this process joins stays, as long as it is the same copy.
  return joins(later.homes(home)) && is_home(home) && view_.epoch() == later.epoch() &&
         view_.homes(home).term() == later.homes(home).term();
}

void ServerFence::require_view(uint64_t epoch, uint64_t number) const {
  if (view_.epoch() < epoch_) {
    fail<Unavailable>("[parameter server] ", name_, ": the coordinator of epoch ", epoch_,
                      " is in charge, and its view has not come yet");
  }
  if (number == view_.number() && epoch == view_.epoch() && number > 0) return;
  fail<Unavailable>("[parameter server] ", name_, ": the call is of view ", number, " of epoch ", epoch, ", this is ",
                    view_.number(), " of epoch ", view_.epoch());
}

const ServerFence::Home& ServerFence::require_primary(int home) const {
  if (is_home(home) && is_me(view_.homes(home).primary(), view_.homes(home).primary_process()))
    return view_.homes(home);
  fail<Unavailable>("[parameter server] ", name_, " is not the primary of home ", home);
}

void ServerFence::require_fill(const Order& order, int home, uint64_t term) {
  const bool of_coordinator = term == 0 && ViewId(order.epoch(), order.view()) >= id_of(view_);
  const bool of_primary = term != 0 && is_home(home) && order.epoch() == view_.epoch() &&
                          view_.homes(home).term() == term && joins(view_.homes(home));
  auto& [epoch, last_term, serial] = fills_[home];
  const bool given_up = epoch == order.epoch() && last_term == term && order.serial() < serial;
  if ((of_coordinator || of_primary) && !given_up) {
    fills_[home] = {order.epoch(), term, order.serial()};
    return;
  }
  fail<Unavailable>("[parameter server] ", name_, ": what comes for home ", home, " is of view ", order.view(),
                    " of epoch ", order.epoch(), " and term ", term, ", attempt ", order.serial(), "; this is view ",
                    view_.number(), " of epoch ", view_.epoch(), ", in which it has no place");
}

const ServerFence::Home& ServerFence::require_copy(const Order& order, int home, uint64_t term) const {
  if (is_home(home) && order.epoch() == view_.epoch() && view_.homes(home).term() == term &&
      is_me(view_.homes(home).primary(), view_.homes(home).primary_process()) && view_.homes(home).joining() >= 0) {
    return view_.homes(home);
  }
  fail<Unavailable>("[parameter server] ", name_, ": a copy of home ", home, " in term ", term, " of epoch ",
                    order.epoch(), " was ordered, this is view ", view_.number(), " of epoch ", view_.epoch());
}

bool ServerFence::require_backup(int home) const {
  const Home& place = view_.homes(home);
  if (is_me(place.backup(), place.backup_process()) || joins(place)) return true;
  if (place.backup() != server_ && place.joining() != server_) return false;
  fail<Unavailable>("[parameter server] ", name_, " was restarted: home ", home, " was with an earlier process of it");
}

// What it has of an earlier epoch or of an earlier term decides nothing any more.
void ServerFence::put_in(KnownNumbers& numbers) const {
  numbers.add_process(server_, process_);
  numbers.add_epoch(epoch_);
  const bool is_present = view_.epoch() == epoch_;
  numbers.add(is_present ? view_ : View());
  for (const auto& [home, last] : fills_) {
    const auto& [epoch, term, serial] = last;
    if (epoch == 0 || epoch != epoch_) continue;
    if (term != 0 && is_present && is_home(home) && view_.homes(home).term() > term) continue;
    numbers.add(home);
    numbers.add_view(epoch, term);
    term == 0 ? numbers.add_fill_serial(epoch, serial) : numbers.add_copy_serial(serial);
  }
  numbers.add(-1);
}

}  // namespace cohort
