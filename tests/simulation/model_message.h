// The messages of the model (model.h).
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/simulation/model_shared.h"
#include "wings/parameter_server/server/fence.h"
#include "wings/parameter_server/server/update_log.h"

namespace cohort::simulation {

// Parts of the protocol (docs/reliability.md) without which something goes wrong. The model can leave one out.
enum class Mend {
  kNone,
  kEpochs,             // coordinators have different epochs
  kIncarnations,       // a process is known by its incarnation, not by the number of its server alone
  kAcknowledgedViews,  // the next step is taken when the view has been taken
  kPassOn,             // an update is passed on to a server that joins
  kWaitForCopy,        // updates of a home wait while it is copied
  kForgetInOneView,    // an order to forget holds for one view
  kFillAgain,          // a server that was filled from before the present checkpoint is filled again
};

struct ModelOptions {
  int servers = 3;
  int replicas = 1;
  int closures = 2;
  int faults = 2;
  // Work and faults begin when the first coordinator has nothing left to do, so that every home has its backup.
  bool settled = false;
  Mend without = Mend::kNone;
};

namespace model {

using View = parameter_server::View;
using Order = parameter_server::Order;

constexpr int kMostClosures = 4;
// The numbers of who sends and gets messages: coordinators begin at 0.
constexpr int kFirstServer = 10;
constexpr int kWorker = 20;

using Counts = std::array<int, kMostClosures>;

template <typename... Plain>
void put(KnownNumbers& numbers, Plain... plain) {
  (numbers.add(static_cast<int64_t>(plain)), ...);
}

// A shard: how often each closure was applied.
struct Holding {
  UpdateLog log;
  Counts counts{};

  void add(int64_t closure) {
    if (log.add({.closure = closure})) ++counts.at(static_cast<std::size_t>(closure));
  }
  void put_in(KnownNumbers& numbers) const {
    for (const int count : counts) put(numbers, count);
    log.put_in(numbers);
  }
};

struct Message {
  enum class Kind { kSetView, kFill, kCopy, kInstall, kPush, kReplicate, kState, kForget, kAnswer };
  Kind kind = Kind::kAnswer;
  Kind answered = Kind::kAnswer;  // of an answer
  int from = 0;
  int to = 0;
  bool awaited = true;
  bool ok = false;
  bool refused = false;
  bool given_up = false;  // the answer did not come
  int home = 0;
  int64_t closure = 0;
  uint64_t term = 0;
  uint64_t process = 0;  // to which a view was sent
  Order order = {};
  View view = {};
  Holding state = {};

  bool is_answer() const { return kind == Kind::kAnswer; }
  // Adds what a request says; answers are heard before a state is looked at.
  void put_in(KnownNumbers& numbers) const {
    const int server = to - kFirstServer;
    put(numbers, kind, from, to, awaited, home, closure);
    numbers.add_epoch(order.epoch());
    numbers.add_view(order.epoch(), order.view());
    numbers.add_view(order.epoch(), term);
    numbers.add_process(server, order.process());
    numbers.add_process(server, process);
    kind == Kind::kInstall ? numbers.add_copy_serial(order.serial())
                           : numbers.add_fill_serial(order.epoch(), order.serial());
    numbers.add(view);
    state.put_in(numbers);
  }
};

// What is under way, in any order.
class Flight {
 public:
  void push_back(Message message) { messages_.emplace_back(std::move(message)); }
  // Removes a message and returns it.
  Message take(std::size_t which) {
    Message message = *messages_[which];
    messages_[which] = messages_.back();
    messages_.pop_back();
    return message;
  }

  std::size_t size() const { return messages_.size(); }
  const Message& operator[](std::size_t which) const { return *messages_[which]; }
  Message& change(std::size_t which) { return messages_[which].change(); }

 private:
  std::vector<Shared<Message>> messages_;
};

// Returns the answer to a request.
inline Message answer_to(const Message& request, bool ok, bool refused = false, const Holding& state = {}) {
  return {.kind = Message::Kind::kAnswer,
          .answered = request.kind,
          .from = request.to,
          .to = request.from,
          .ok = ok,
          .refused = refused,
          .home = request.home,
          .closure = request.closure,
          .process = request.process,
          .view = request.view,
          .state = state};
}

inline Order order_of(uint64_t epoch, uint64_t view, uint64_t process = 0) {
  Order order;
  order.set_epoch(epoch);
  order.set_view(view);
  order.set_process(process);
  return order;
}

}  // namespace model

}  // namespace cohort::simulation
