#include "tests/simulation/model.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"

namespace cohort::simulation {

using model::Message;

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
Model& Model::add(std::vector<Model>& list, const Step& step) const {
  list.push_back(*this);
  list.back().step_ = step;
  return list.back();
}

Model::Step Model::about(const char* what, const Message& message) {
  return {.what = what,
          .message = static_cast<int>(message.kind),
          .from = message.from,
          .to = message.to,
          .view = message.order.view() + message.view.number()};
}

std::string Model::step() const {
  static const char* const names[] = {"view", "fill", "copy", "install", "push", "replicate", "state", "forget"};
  std::string text;
  auto number = step_.numbers.begin();
  for (const char* at = step_.what; *at != 0; ++at) {
    if (*at == '#') {
      text += std::to_string(*number++);
    } else {
      text += *at;
    }
  }
  if (step_.message < 0) return text;
  return c10::str(text, ": ", names[step_.message], " of ", step_.from, " to ", step_.to, ", view ", step_.view);
}

std::vector<Model> Model::next() const {
  std::vector<Model> list;
  if (is_done() || !violation().empty()) return list;
  add_deliveries(list);
  for (int number = 0; number < static_cast<int>(chiefs_.size()); ++number) add_chief_steps(list, number);
  add_worker_steps(list);
  if (faults_ < options_.faults && (!options_.settled || chiefs_.front()->has_scheduled())) add_faults(list);
  for (Model& each : list) each.drop_dead();
  return list;
}

// Removes what is under way and can change nothing any more.
void Model::drop_dead() {
  for (std::size_t i = flight_.size(); i-- > 0;) {
    const Message& message = flight_[i];
    const ModelServer& to = *servers_[static_cast<std::size_t>(message.to - model::kFirstServer)];
    if (!message.awaited && to.is_dead(message, /*last=*/faults_ == options_.faults)) (void)flight_.take(i);
  }
}

// -- The network.

void Model::add_deliveries(std::vector<Model>& list) const {
  for (std::size_t i = 0; i < flight_.size(); ++i) {
    add(list, about("arrives", flight_[i])).deliver(i, /*answered=*/true);
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
    const ModelChief& chief = *chiefs_.at(static_cast<std::size_t>(answer.to));
    const ServerFence& fence = servers_.at(static_cast<std::size_t>(answer.from - model::kFirstServer))->fence();
    // A view that is refused is a reason to ask who is in charge.
    const bool asks = answer.refused && answer.answered == Message::Kind::kSetView &&
                      chief.has_news(answer.from - model::kFirstServer, fence);
    if (asks) hear_of(answer.to, answer.from - model::kFirstServer);
    return chiefs_[static_cast<std::size_t>(answer.to)].change().hear(answer);
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

// Lets a coordinator hear of a server. One that has been replaced ends, and waits for nothing any more.
void Model::hear_of(int number, int index) {
  ModelChief& chief = chiefs_.at(static_cast<std::size_t>(number)).change();
  chief.hear_of(index, servers_.at(static_cast<std::size_t>(index))->fence());
  if (!chief.fenced()) return;
  for (auto& each : servers_) each.change().drop_chief(number);
  for (std::size_t i = 0; i < flight_.size(); ++i) {
    if (flight_[i].from == number && !flight_[i].is_answer()) flight_.change(i).awaited = false;
  }
}

void Model::add_chief_steps(std::vector<Model>& list, int number) const {
  const auto at = static_cast<std::size_t>(number);
  const ModelChief& chief = *chiefs_[at];
  const auto change = [&](const char* what) -> Model& { return add(list, {.what = what, .numbers = {number}}); };
  if (!chief.begun()) {
    Model& after = change("coordinator # meets the servers and begins");
    for (int i = 0; i < options_.servers; ++i)
      after.chiefs_[at].change().hear_of(i, servers_[static_cast<std::size_t>(i)]->fence());
    after.chiefs_[at].change().begin(after.disk_);
    return;
  }
  for (int i = 0; i < options_.servers; ++i) {
    const ServerFence& fence = servers_[static_cast<std::size_t>(i)]->fence();
    if (chief.has_news(i, fence)) change("coordinator # hears of a server").hear_of(number, i);
  }
  if (chief.may_act()) {
    Model& after = change("coordinator # does what its roster wants");
    after.chiefs_[at].change().act(after.flight_);
  }
  if (chief.may_schedule()) change("coordinator # schedules a closure").chiefs_[at].change().schedule();
  if (chief.may_collect()) {
    Model& after = change("coordinator # collects");
    after.chiefs_[at].change().collect(after.flight_);
  }
  if (chief.may_write()) {
    Model& after = change("coordinator # has written a checkpoint");
    after.chiefs_[at].change().write(after.disk_);
  }
  if (chief.may_tell(flight_)) {
    Model& after = change("coordinator # tells a server what to forget");
    after.chiefs_[at].change().tell(after.flight_);
  }
}

// -- The worker.

void Model::add_worker_steps(std::vector<Model>& list) const {
  const int latest = static_cast<int>(chiefs_.size()) - 1;
  if (worker_.chief != latest && chiefs_.back()->begun()) add(list, {.what = "the worker joins"}).join(latest);
  if (worker_.chief < 0) return;
  const ModelChief& chief = *chiefs_[static_cast<std::size_t>(worker_.chief)];
  if (worker_.pushing || chief.view().number() == 0) return;
  if (worker_.closure >= 0) return add(list, {.what = "the worker pushes again"}).push(chief.view());
  ModelChief asked = chief;
  const auto taken = asked.take();
  if (!taken) return;
  Model& after = add(list, {.what = "the worker takes a closure and pushes"});
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
  const auto fault = [&](const Step& step) -> Model& {
    Model& after = add(list, step);
    ++after.faults_;
    return after;
  };
  for (int i = 0; i < options_.servers; ++i) fault({.what = "! server # is restarted", .numbers = {i}}).restart(i);
  if (chiefs_.back()->begun()) {
    fault({.what = "! another coordinator begins"})
        .chiefs_.emplace_back(ModelChief(static_cast<int>(chiefs_.size()), options_));
  }
  for (std::size_t c = 0; c < chiefs_.size(); ++c) {
    for (int i = 0; i < options_.servers; ++i) {
      if (!chiefs_[c]->begun() || chiefs_[c]->fenced() || !chiefs_[c]->up(i)) continue;
      fault({.what = "! coordinator # takes server # for lost", .numbers = {static_cast<int>(c), i}})
          .chiefs_[c]
          .change()
          .lose(i);
    }
  }
  for (std::size_t i = 0; i < flight_.size(); ++i) {
    if (!flight_[i].awaited) continue;
    fault(about("! is given up", flight_[i])).give_up(i);
    fault(about("! is lost", flight_[i])).lose(i);
    fault(about("! arrives, and its answer is lost", flight_[i])).deliver(i, /*answered=*/false);
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
  KnownNumbers numbers;
  numbers.add_epoch(disk_.epoch);
  model::put(numbers, disk_.next, faults_, worker_.chief, worker_.closure, worker_.pushing);
  for (const int count : disk_.counts) model::put(numbers, count);
  for (const auto& each : servers_) each->put_in(numbers);
  for (int number = 0; number < static_cast<int>(chiefs_.size()); ++number) {
    const ModelChief::Given given{.closure = worker_.closure, .attempt = worker_.attempt};
    chiefs_[static_cast<std::size_t>(number)]->put_in(numbers, number == worker_.chief ? &given : nullptr);
  }
  std::vector<std::size_t> ends{numbers.list().size()};
  for (std::size_t i = 0; i < flight_.size(); ++i) {
    flight_[i].put_in(numbers);
    ends.push_back(numbers.list().size());
  }
  return model::key_of(numbers, ends);
}

}  // namespace cohort::simulation
