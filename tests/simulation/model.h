// Model: a parameter-server cluster as a value, and the steps that it may take. Its decisions are those of the
// library's Roster, ServerFence and UpdateLog. The rest is written here, as small as may be: home 0 alone is updated,
// by one worker; a shard is a counter of each closure; work is queued by the rules of ClosureQueue. A message arrives
// at any time after it was sent, in any order. A fault is: a server is restarted; another coordinator begins beside the
// first; a server is taken for lost although it is there; a caller gives up a call, whose message may arrive all the
// same, or is lost; an answer is lost.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulation/model_chief.h"
#include "tests/simulation/model_key.h"
#include "tests/simulation/model_message.h"
#include "tests/simulation/model_server.h"

namespace cohort::simulation {

class Model {
 public:
  explicit Model(const ModelOptions& options);

  // Returns every state that can follow.
  std::vector<Model> next() const;
  // Returns whether the last coordinator has read the result.
  bool is_done() const { return chiefs_.back()->done(); }
  // Returns what is wrong, or nothing.
  std::string violation() const;
  // Two states whose keys are the same go on alike.
  model::Key key() const;
  // Returns what the last step was.
  std::string step() const;

 private:
  struct Worker {
    int chief = -1;
    int64_t closure = -1;
    int attempt = 0;
    bool pushing = false;
  };

  // A step, put into words when they are wanted.
  struct Step {
    const char* what = "";         // with # for a number
    std::array<int, 2> numbers{};  // those numbers
    int message = -1;              // its kind, if the step is about one
    int from = 0, to = 0;
    uint64_t view = 0;
  };

  static Step about(const char* what, const model::Message& message);
  Model& add(std::vector<Model>& list, const Step& step) const;
  void add_deliveries(std::vector<Model>& list) const;
  void add_chief_steps(std::vector<Model>& list, int number) const;
  void add_worker_steps(std::vector<Model>& list) const;
  void add_faults(std::vector<Model>& list) const;

  void deliver(std::size_t which, bool answered);
  void hear_of(int chief, int server);
  void drop_dead();
  void settle();
  void hear(const model::Message& answer);
  void give_up(std::size_t which);
  void lose(std::size_t which);
  void restart(int number);
  void join(int chief);
  void push(const model::View& view);

  ModelOptions options_;
  ModelDisk disk_;
  ModelServer& server(int number) { return servers_.at(static_cast<std::size_t>(number)).change(); }

  std::vector<model::Shared<ModelServer>> servers_;
  std::vector<model::Shared<ModelChief>> chiefs_;
  Worker worker_;
  model::Flight flight_;
  int faults_ = 0;
  Step step_;
};

}  // namespace cohort::simulation
