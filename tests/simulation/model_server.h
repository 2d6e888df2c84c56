// ModelServer: a parameter server of the model (model.h).
#pragma once

#include <map>

#include "tests/simulation/model_message.h"
#include "wings/parameter_server/server/fence.h"

namespace cohort::simulation {

class ModelServer {
 public:
  using Message = model::Message;
  using Flight = model::Flight;

  // Makes the process of a server that is started after so many restarts.
  ModelServer(int index, int restarts, const ModelOptions& options)
      : index_(index),
        restarts_(restarts),
        without_(options.without),
        fence_(index, process_of(index, without_ == Mend::kIncarnations ? 0 : restarts),
               "ps " + std::to_string(index)) {}

  const ServerFence& fence() const { return fence_; }
  int restarts() const { return restarts_; }

  // Handles a message, and sends what it sends.
  void handle(const Message& message, Flight& flight);
  // Hears the answer of another server.
  void hear(const Message& answer, Flight& flight);
  // Ends: the calls that it was answering fail.
  void end(Flight& flight) const;
  // The worker does not wait for an answer any more.
  void drop_worker() { left_ = 0; }

  // Nothing that this coordinator asked for is awaited any more.
  void drop_chief(int chief) {
    if (copy_for_ == chief) copy_for_ = -1;
  }
  // Returns whether a message that nobody waits for can never change anything here. `last`: no process comes after this
  // one.
  bool is_dead(const Message& message, bool last) const;

  void put_in(KnownNumbers& numbers) const;

 private:
  void obey_order(const Message& message, Flight& flight);
  void set_view(const model::View& view);
  void copy(const Message& request, Flight& flight);
  void push(const Message& request, Flight& flight);
  void replicate(const Message& request, Flight& flight);
  static void answer(const Message& request, Flight& flight, const model::Holding& state = {});

  static uint64_t process_of(int index, int restarts) { return static_cast<uint64_t>(100 * (index + 1) + restarts); }
  int number() const { return model::kFirstServer + index_; }

  int index_;
  int restarts_;
  Mend without_;
  ServerFence fence_;
  std::map<int, model::Holding> homes_;
  // The attempts to copy. One that was answered has the number of the next one: nothing of it is under way.
  uint64_t serial_ = 1;
  int copying_ = -1;   // the home of which a copy is under way
  int copy_for_ = -1;  // the coordinator that waits for it; -1: none any more
  // The worker's update, which backups have to answer.
  int left_ = 0;
  bool failed_ = false;
};

}  // namespace cohort::simulation
