#include "tests/simulation/model.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"

namespace cohort::simulation {

using model::Message;

namespace {

std::string text_of(const Message& message) {
  static const char* const names[] = {"view", "fill", "copy", "install", "push", "replicate", "state", "forget"};
  return c10::str(names[static_cast<std::size_t>(message.kind)], " of ", message.from, " to ", message.to, ", view ",
                  message.order.view() + message.view.number());
}

}  // namespace

Model::Model(const ModelOptions& options) : options_(options) {
  for (int i = 0; i < options_.servers; ++i) servers_.emplace_back(ModelServer(i, /*restarts=*/0, options_));
  chiefs_.emplace_back(ModelChief(0, options_));
}

std::string Model::violation() const {
  for (const model::Shared<ModelChief>& chief : chiefs_) {
    if (!chief->violation().empty()) return chief->violation();
  }
  return "";
}

// Adds a state that is this one, to be changed by a step.
Model& Model::add(std::vector<Model>& list, const std::string& what) const {
  list.push_back(*this);
  list.back().step_ = what;
  return list.back();
}

std::vector<Model> Model::next() const {
  std::vector<Model> list;
  if (is_done() || !violation().empty()) return list;
  add_deliveries(list);
  for (int number = 0; number < static_cast<int>(chiefs_.size()); ++number) add_chief_steps(list, number);
  add_worker_steps(list);
  if (faults_ < options_.faults && (!options_.settled || chiefs_.front()->has_scheduled())) add_faults(list);
  return list;
}

// -- The network.

void Model::add_deliveries(std::vector<Model>& list) const {
  for (std::size_t i = 0; i < flight_.size(); ++i) {
    add(list, "arrives: " + text_of(flight_[i])).deliver(i, /*answered=*/true);
  }
}

// Lets a message arrive. Its answer, or that of what it ends, is heard at once, unless it is lost.
void Model::deliver(std::size_t which, bool answered) {
  const Message message = flight_.take(which);
  server(message.to - model::kFirstServer).handle(message, flight_);
  for (std::size_t i = 0; i < flight_.size() && !answered; ++i) {
    if (!flight_[i].is_answer() || flight_[i].to != message.from) continue;
    Message& answer = flight_.change(i);
    answer.ok = answer.refused = false;
    answer.given_up = true;
  }
  settle();
}

// Lets the answers be heard.
void Model::settle() {
  for (std::size_t i = 0; i < flight_.size();) {
    if (!flight_[i].is_answer()) {
      ++i;
      continue;
    }
    hear(flight_.take(i));
    i = 0;
  }
}

void Model::hear(const Message& answer) {
  if (answer.to < model::kFirstServer) {
    ModelChief& chief = chiefs_.at(static_cast<std::size_t>(answer.to)).change();
    const ServerFence& fence = servers_.at(static_cast<std::size_t>(answer.from - model::kFirstServer))->fence();
    // A view that is refused is a reason to ask who is in charge.
    const bool asks = answer.refused && answer.answered == Message::Kind::kSetView &&
                      chief.has_news(answer.from - model::kFirstServer, fence);
    if (asks) chief.hear_of(answer.from - model::kFirstServer, fence);
    return chief.hear(answer);
  }
  if (answer.to < model::kWorker) {
    return server(answer.to - model::kFirstServer).hear(answer, flight_);
  }
  worker_.pushing = false;
  if (!answer.ok) return;
  chiefs_.at(static_cast<std::size_t>(worker_.chief)).change().finish(worker_.closure, worker_.attempt);
  worker_.closure = -1;
}

// -- Coordinators.

void Model::add_chief_steps(std::vector<Model>& list, int number) const {
  const auto at = static_cast<std::size_t>(number);
  const ModelChief& chief = *chiefs_[at];
  const auto change = [&](const char* what) -> Model& {
    return add(list, c10::str("coordinator ", number, " ", what));
  };
  if (!chief.begun()) {
    Model& after = change("meets the servers and begins");
    for (int i = 0; i < options_.servers; ++i)
      after.chiefs_[at].change().hear_of(i, servers_[static_cast<std::size_t>(i)]->fence());
    after.chiefs_[at].change().begin(after.disk_);
    return;
  }
  for (int i = 0; i < options_.servers; ++i) {
    const ServerFence& fence = servers_[static_cast<std::size_t>(i)]->fence();
    if (!chief.has_news(i, fence)) continue;
    change("hears of a server").chiefs_[at].change().hear_of(i, fence);
  }
  if (chief.may_act()) {
    Model& after = change("does what its roster wants");
    after.chiefs_[at].change().act(after.flight_);
  }
  if (chief.may_schedule()) change("schedules a closure").chiefs_[at].change().schedule();
  if (chief.may_collect()) {
    Model& after = change("collects");
    after.chiefs_[at].change().collect(after.flight_);
  }
  if (chief.may_write()) {
    Model& after = change("has written a checkpoint");
    after.chiefs_[at].change().write(after.disk_);
  }
  if (chief.may_tell(flight_)) {
    Model& after = change("tells a server what to forget");
    after.chiefs_[at].change().tell(after.flight_);
  }
}

// -- The worker.

void Model::add_worker_steps(std::vector<Model>& list) const {
  const int latest = static_cast<int>(chiefs_.size()) - 1;
  if (worker_.chief != latest && chiefs_.back()->begun()) add(list, "the worker joins").join(latest);
  if (worker_.chief < 0) return;
  const ModelChief& chief = *chiefs_[static_cast<std::size_t>(worker_.chief)];
  if (worker_.pushing || chief.view().number() == 0) return;
  if (worker_.closure >= 0) return add(list, "the worker pushes again").push(chief.view());
  ModelChief asked = chief;
  const auto taken = asked.take();
  if (!taken) return;
  Model& after = add(list, "the worker takes a closure and pushes");
  (void)after.chiefs_[static_cast<std::size_t>(worker_.chief)].change().take();
  std::tie(after.worker_.closure, after.worker_.attempt) = *taken;
  after.push(chief.view());
}

// Goes over to another coordinator. Nobody waits for what was under way.
void Model::join(int chief) {
  worker_ = {.chief = chief};
  for (std::size_t i = 0; i < flight_.size(); ++i) {
    const Message::Kind kind = flight_[i].kind;
    if (kind == Message::Kind::kPush || kind == Message::Kind::kReplicate) flight_.change(i).awaited = false;
  }
  for (auto& each : servers_) each.change().drop_worker();
}

// Pushes in this view, of which it has just heard. While the message is under way it becomes an old one.
void Model::push(const model::View& view) {
  worker_.pushing = true;
  flight_.push_back({.kind = Message::Kind::kPush,
                     .from = model::kWorker,
                     .to = model::kFirstServer + view.homes(0).primary(),
                     .closure = worker_.closure,
                     .order = model::order_of(view.epoch(), view.number())});
}

// -- Faults.

void Model::add_faults(std::vector<Model>& list) const {
  const auto fault = [&](const std::string& what) -> Model& {
    Model& after = add(list, "! " + what);
    ++after.faults_;
    return after;
  };
  for (int i = 0; i < options_.servers; ++i) fault(c10::str("server ", i, " is restarted")).restart(i);
  if (chiefs_.back()->begun()) {
    fault("another coordinator begins").chiefs_.emplace_back(ModelChief(static_cast<int>(chiefs_.size()), options_));
  }
  for (std::size_t c = 0; c < chiefs_.size(); ++c) {
    for (int i = 0; i < options_.servers; ++i) {
      if (!chiefs_[c]->begun() || chiefs_[c]->fenced() || !chiefs_[c]->up(i)) continue;
      fault(c10::str("coordinator ", c, " takes server ", i, " for lost")).chiefs_[c].change().lose(i);
    }
  }
  for (std::size_t i = 0; i < flight_.size(); ++i) {
    if (!flight_[i].awaited) continue;
    fault("is given up: " + text_of(flight_[i])).give_up(i);
    fault("is lost: " + text_of(flight_[i])).lose(i);
    fault("arrives, and its answer is lost: " + text_of(flight_[i])).deliver(i, /*answered=*/false);
  }
}

// Ends a call whose message has not arrived yet, and may still do so.
void Model::give_up(std::size_t which) {
  Message failed = model::answer_to(flight_[which], /*ok=*/false);
  failed.given_up = true;
  flight_.change(which).awaited = false;
  flight_.push_back(failed);
  settle();
}

// Ends a call whose message will never arrive.
void Model::lose(std::size_t which) {
  Message failed = model::answer_to(flight_.take(which), /*ok=*/false);
  failed.given_up = true;
  flight_.push_back(failed);
  settle();
}

// Starts a server again. The calls that it was answering fail, and it waits for no answer.
void Model::restart(int number) {
  model::Shared<ModelServer>& place = servers_.at(static_cast<std::size_t>(number));
  place->end(flight_);
  place = ModelServer(number, place->restarts() + 1, options_);
  for (std::size_t i = 0; i < flight_.size(); ++i) {
    if (flight_[i].from != model::kFirstServer + number || flight_[i].is_answer()) continue;
    flight_.change(i).awaited = false;
  }
  settle();
}

model::Key Model::key() const {
  std::string text;
  model::put(text, disk_.epoch, disk_.next, faults_, worker_.chief, worker_.closure, worker_.attempt, worker_.pushing);
  for (const int count : disk_.counts) model::put(text, count);
  model::Key key = model::then(model::key_of(text), flight_.key());
  for (const auto& each : servers_) key = model::then(key, each.key());
  for (const auto& each : chiefs_) key = model::then(key, each.key());
  return key;
}

}  // namespace cohort::simulation
