// ClosureTable: the closures of a coordinator and who runs them, and the decision which closure a worker gets next. It
// has no lock: ClosureQueue keeps one, and changes it.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cohort/cluster/consistency.h"
#include "wings/parameter_server/coordinator/remote_value_state.h"
#include "wings/parameter_server/server/pending_steps.h"

namespace cohort {

struct Closure {
  int64_t id = 0;
  std::string step;  // the name of a registered function
  std::vector<torch::Tensor> arguments;
  Share share;          // the share of a synchronous step
  double weight = 1.0;  // the part of the step's examples that it has
  bool exact = false;   // it needs the values that the step began with; a worker that cannot get them leaves it
  int64_t after = 0;    // the number of changes that were known when it was scheduled, which it has to see
  // The number of the take that gave it to a worker, by which a report of an earlier one is known.
  uint64_t attempt = 0;
};

struct ClosureTable {
  enum class State { kQueued, kRunning, kDone };
  struct Entry {
    Closure closure;
    std::shared_ptr<RemoteValueState> value;
    int64_t group = 0;
    State state = State::kQueued;
    std::map<int, uint64_t> runners;  // the attempt of each worker
    bool again = false;               // it has to be done once more when it is done
    bool made = false;                // its update, or a part of it, is applied, so that running it twice is useless
  };
  struct Worker {
    int64_t steps = 0;
    int running = 0;
    uint64_t session = 0;
  };

  std::map<int64_t, Entry> entries;  // open closures and the log of finished ones, by id
  std::set<int64_t> queued;
  std::set<int64_t> running;
  std::map<int, Worker> workers;
};

// Returns the closure that the worker gets next, or nothing if none is ready for it. With `sparingly` a busy worker
// gets one only while there are enough for all and the order does not matter.
std::optional<int64_t> next_closure(const ClosureTable& table, const Consistency& consistency, int worker,
                                    bool sparingly);

}  // namespace cohort
