#include "wings/parameter_server/coordinator/roster.h"

#include <algorithm>

#include "base/fail.h"

namespace cohort {

namespace {

using Home = parameter_server::View::Home;

void set_primary(Home& home, int server, uint64_t process) {
  home.set_primary(server);
  home.set_primary_process(process);
}

void set_backup(Home& home, int server = -1, uint64_t process = 0) {
  home.set_backup(server);
  home.set_backup_process(process);
}

void set_joining(Home& home, int server = -1, uint64_t process = 0) {
  home.set_joining(server);
  home.set_joining_process(process);
}

}  // namespace

Roster::Roster(const RosterOptions& options) : options_(options), servers_(static_cast<std::size_t>(options.servers)) {
  view_.set_run(options_.run);
  for (int server = 0; server < options_.servers; ++server) {
    Home& home = *view_.add_homes();
    set_primary(home, server, 0);
    set_backup(home);
    set_joining(home);
  }
}

// -- The beginning.

// Returns the first server of those that may have the home at its best and are there, or -1.
int Roster::first_primary(int home) const {
  for (int i = 0; i < options_.replicas; ++i) {
    const int server = (home + i) % options_.servers;
    if (of(server).up) return server;
  }
  return -1;
}

std::vector<int> Roster::missing(bool one_is_enough) const {
  std::vector<int> list;
  for (int home = 0; home < options_.servers; ++home) {
    if (one_is_enough && first_primary(home) >= 0) continue;
    for (int i = 0; i < options_.replicas; ++i) {
      const int server = (home + i) % options_.servers;
      if (!of(server).up) list.push_back(server);
    }
  }
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

void Roster::begin(uint64_t epoch) {
  view_.set_epoch(epoch);
  for (int home = 0; home < options_.servers; ++home) {
    if (const int server = first_primary(home); server >= 0) set_primary(*view_.mutable_homes(home), server, 0);
    touch(*view_.mutable_homes(home));
  }
  begun_ = true;
}

// -- What is heard.

void Roster::enter(int server, uint64_t process) {
  Server& known = of(server);
  if (known.process != process) known = {.process = process};
  known.up = true;
}

void Roster::lose(int server) {
  of(server).up = false;
}

void Roster::acknowledge(int server, uint64_t process, uint64_t number) {
  Server& known = of(server);
  if (known.process == process) known.acknowledged = std::max(known.acknowledged, number);
}

void Roster::distrust(int server, uint64_t process) {
  for (Home& home : *view_.mutable_homes()) {
    if (home.primary() == server && home.primary_process() == process) home.set_primary_process(0);
    if (home.backup() == server && home.backup_process() == process) home.set_backup_process(0);
    if (home.joining() == server && home.joining_process() == process) home.set_joining_process(0);
  }
}

void Roster::touch(View::Home& home) {
  home.set_term(view_.number() + 1);
  changed_ = true;
}

void Roster::carried_out(const RosterAction& action) {
  View::Home& home = *view_.mutable_homes(action.home);
  if (!is_there(action.server, action.process)) return;
  if (action.kind == RosterAction::Kind::kFill && home.primary() == action.server && !served(action.home)) {
    set_primary(home, action.server, action.process);
    touch(home);
  }
  if (action.kind == RosterAction::Kind::kCopy && home.term() == action.term && home.joining() == action.server &&
      home.joining_process() == action.process) {
    set_backup(home, action.server, action.process);
    set_joining(home);
    touch(home);
  }
}

// -- What the coordinator wants.

void Roster::set_learning_rate(uint32_t variable, double rate) {
  auto& known = *view_.mutable_rates();
  const auto found =
      std::find_if(known.begin(), known.end(), [&](const auto& each) { return each.variable() == variable; });
  View::Rate& entry = found == known.end() ? *view_.add_rates() : *found;
  entry.set_variable(variable);
  entry.set_learning_rate(rate);
  changed_ = true;
}

void Roster::drop_backups() {
  for (Home& home : *view_.mutable_homes()) {
    if (home.backup() < 0 && home.joining() < 0) continue;
    set_backup(home);
    set_joining(home);
    touch(home);
  }
}

void Roster::renew() {
  changed_ = true;
}

// -- What is to be done.

bool Roster::is_there(int server, uint64_t process) const {
  return server >= 0 && process != 0 && of(server).up && of(server).process == process;
}

bool Roster::served(int home) const {
  const Home& place = view_.homes(home);
  return is_there(place.primary(), place.primary_process());
}

// Returns whether the server's process, which is there, has a part in the view.
bool Roster::has_part(int server) const {
  return std::any_of(view_.homes().begin(), view_.homes().end(), [&](const Home& home) {
    const auto is = [&](int named, uint64_t process) { return named == server && is_there(named, process); };
    return is(home.primary(), home.primary_process()) || is(home.backup(), home.backup_process()) ||
           is(home.joining(), home.joining_process());
  });
}

std::vector<int> Roster::servers() const {
  std::vector<int> list;
  for (int server = 0; server < options_.servers; ++server) {
    if (of(server).up && of(server).acknowledged != view_.number()) list.push_back(server);
  }
  return list;
}

bool Roster::is_delivered() const {
  const std::vector<int> open = servers();
  return std::none_of(open.begin(), open.end(), [&](int server) { return has_part(server); });
}

// Takes those out of a home that are lost. Returns whether there were any.
bool Roster::drop_lost(Home& home) const {
  bool changed = false;
  if (home.joining() >= 0 && !is_there(home.joining(), home.joining_process())) {
    set_joining(home);
    changed = true;
  }
  if (home.backup() < 0) return changed;
  if (!is_there(home.backup(), home.backup_process())) {
    // While both are silent either may come back with the shards.
    if (!of(home.primary()).up && !of(home.backup()).up) return changed;
    set_backup(home);
    return true;
  }
  if (is_there(home.primary(), home.primary_process())) return changed;
  set_primary(home, home.backup(), home.backup_process());
  set_backup(home);
  return true;
}

// Returns the server that is to join a home, or -1 for none. At its best a home is on the server of its number, with
// the next one as the backup; while one of them is away another one takes its part.
int Roster::candidate(int home) const {
  const Home& place = view_.homes(home);
  if (options_.replicas < 2 || !served(home) || place.joining() >= 0) return -1;
  for (int i = 0; i < options_.servers; ++i) {
    const int server = (home + i) % options_.servers;
    if (server == place.primary()) continue;
    if (server == place.backup()) return -1;
    if (of(server).up) return server;
  }
  return -1;
}

// Lets one server join a home, or lets one that was away serve its own home again.
void Roster::change_roles() {
  for (int index = 0; index < options_.servers; ++index) {
    const int server = candidate(index);
    if (server < 0) continue;
    Home& home = *view_.mutable_homes(index);
    set_joining(home, server, of(server).process);
    touch(home);
    return;
  }
  for (int index = 0; index < options_.servers; ++index) {
    Home& home = *view_.mutable_homes(index);
    if (home.backup() != index || !served(index) || !is_there(index, home.backup_process())) continue;
    const int before = home.primary();
    const uint64_t process = home.primary_process();
    set_primary(home, index, home.backup_process());
    set_backup(home, before, process);
    touch(home);
    return;
  }
}

RosterAction Roster::next() {
  if (!begun_) return {};
  for (Home& home : *view_.mutable_homes()) {
    if (drop_lost(home)) touch(home);
  }
  if (const RosterAction action = publish(); action.kind != RosterAction::Kind::kNone) return action;
  // Homes that no process holds come before backups, so that a process that has joined one home is never taken for the
  // holder of another.
  for (int index = 0; index < options_.servers; ++index) {
    const int server = view_.homes(index).primary();
    if (served(index) || !of(server).up) continue;
    return {.kind = RosterAction::Kind::kFill, .home = index, .server = server, .process = of(server).process};
  }
  for (int index = 0; index < options_.servers; ++index) {
    const Home& home = view_.homes(index);
    if (home.joining() < 0 || !served(index)) continue;
    return {.kind = RosterAction::Kind::kCopy,
            .home = index,
            .server = home.joining(),
            .process = home.joining_process(),
            .term = home.term()};
  }
  change_roles();
  return publish();
}

// Gives a changed view its number. Returns kPublish until announced() was called for that number, otherwise kNone.
RosterAction Roster::publish() {
  if (changed_) view_.set_number(view_.number() + 1);
  changed_ = false;
  if (announced_ == view_.number() && is_delivered()) return {};
  return {.kind = RosterAction::Kind::kPublish};
}

void Roster::announced() {
  announced_ = view_.number();
}

void Roster::put_in(KnownNumbers& numbers) const {
  const uint64_t epoch = view_.epoch();
  numbers.add(begun_);
  numbers.add(changed_);
  numbers.add_view(epoch, announced_);
  for (int server = 0; server < options_.servers; ++server) {
    numbers.add(of(server).up);
    numbers.add_process(server, of(server).process);
    numbers.add_view(epoch, of(server).acknowledged);
  }
  numbers.add(view_);
}

}  // namespace cohort
