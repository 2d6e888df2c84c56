// Roster: the keeper's decisions. It knows which process of each server is there and which shards it was given, and
// says what has to be done next: publish a view, fill a home, copy one. It has no clock, socket, disk or thread; the
// keeper carries out what it says and reports how that ended. docs/reliability.md has the protocol.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages.pb.h"
#include "wings/parameter_server/known_numbers.h"

namespace cohort {

struct RosterOptions {
  int servers = 1;
  int replicas = 1;
  uint64_t run = 1;
};

// The next thing to do, and for which processes. The processes are those that were there when it was decided, so that
// a server that is restarted meanwhile is never taken for the one that was filled.
struct RosterAction {
  enum class Kind {
    kNone,
    kPublish,  // note the view, then give it to servers()
    kFill,     // give the home's shards to `server`, from what was saved
    kCopy,     // let the home's primary give its shards to `server`, which joins the home
  };
  Kind kind = Kind::kNone;
  int home = -1;
  int server = -1;
  uint64_t process = 0;  // the incarnation of `server`
  uint64_t term = 0;     // View::Home::term, for kCopy

  friend bool operator==(const RosterAction&, const RosterAction&) = default;
};

// Not thread-safe.
class Roster {
 public:
  using View = parameter_server::View;

  explicit Roster(const RosterOptions& options);

  // -- The beginning. Before begin() nothing is to be done.

  // Returns the servers that have to be there before begin() and are not: all of them, or with `one_is_enough` those of
  // the homes that no server which is there can have.
  std::vector<int> missing(bool one_is_enough) const;
  // Makes this coordinator's first view, in an epoch that must be later than any that a server has heard of. Nobody
  // holds anything in it, so that every home is filled; what servers have from an earlier coordinator is given up. A
  // home begins on its own server, or, if that is away, on the one that would be its backup.
  void begin(uint64_t epoch);

  // -- What is heard.

  // Notes that this process of the server is there.
  void enter(int server, uint64_t process);
  // Notes that nothing is heard of the server any more.
  void lose(int server);
  // Notes that the process has taken the view of this number.
  void acknowledge(int server, uint64_t process, uint64_t number);
  // Notes that the process does not have the shards that a view gives it.
  void distrust(int server, uint64_t process);
  // Notes that a fill or a copy was carried out. Nothing changes if what it was for has changed meanwhile.
  void carried_out(const RosterAction& action);

  // -- What the coordinator wants.

  void set_learning_rate(uint32_t variable, double rate);
  // Takes all backups away, so that the primaries can be given other values.
  void drop_backups();
  // Makes a view in which nothing but its number is new. Nobody goes on using values that were read before it.
  void renew();

  // -- What is to be done.

  // Returns the next action. A view that has changed is published, and taken by all that have a part in it, before
  // anything else is done.
  RosterAction next();
  // Returns the servers that are there and have not taken view() yet.
  std::vector<int> servers() const;
  // Returns whether all processes that have a part in the view, and are there, have taken it.
  bool is_delivered() const;
  // Notes that everybody else was told of the view, after it was delivered.
  void announced();
  const View& view() const { return view_; }

  bool up(int server) const { return of(server).up; }
  uint64_t process(int server) const { return of(server).process; }
  // Returns whether the home's primary is there and has the shards.
  bool served(int home) const;

  // Adds everything that its decisions depend on.
  void put_in(KnownNumbers& numbers) const;

 private:
  struct Server {
    bool up = false;
    uint64_t process = 0;
    uint64_t acknowledged = 0;  // the number of the last view that the process took from this coordinator
  };

  Server& of(int server) { return servers_.at(static_cast<std::size_t>(server)); }
  const Server& of(int server) const { return servers_.at(static_cast<std::size_t>(server)); }
  bool is_there(int server, uint64_t process) const;
  bool has_part(int server) const;
  bool drop_lost(View::Home& home) const;
  int first_primary(int home) const;
  int candidate(int home) const;
  void change_roles();
  RosterAction publish();
  void touch(View::Home& home);

  const RosterOptions options_;
  std::vector<Server> servers_;
  View view_;
  bool begun_ = false;
  bool changed_ = false;    // the view is to get a new number
  uint64_t announced_ = 0;  // the number of the last view that everybody was told of
};

}  // namespace cohort
