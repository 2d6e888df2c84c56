#include "tests/simulation/model_chief.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"

namespace cohort::simulation {

using Kind = RosterAction::Kind;

// -- The servers.

bool ModelChief::has_news(int server, const ServerFence& fence) const {
  const bool known = roster_.up(server) && roster_.process(server) == fence.process();
  return !fenced_ && (!known || (begun() && fence.epoch() > epoch_));
}

void ModelChief::hear_of(int server, const ServerFence& fence) {
  roster_.enter(server, fence.process());
  fenced_ = begun() && fence.epoch() > epoch_;
}

// The directory has the latest epoch of all, so that those which servers know need not be asked for.
void ModelChief::begin(ModelDisk& disk) {
  if (disk.epoch == 0 || options_.without != Mend::kEpochs) ++disk.epoch;
  epoch_ = disk.epoch;
  roster_.begin(epoch_);
  source_next_ = scheduled_ = kept_from_ = disk.next;
  source_ = disk.counts;
}

bool ModelChief::serves_all(const Roster& roster, Kind next) const {
  if (next != Kind::kNone && next != Kind::kCopy) return false;
  for (int home = 0; home < options_.servers; ++home) {
    if (!roster.served(home)) return false;
  }
  return true;
}

bool ModelChief::may_act() const {
  if (fenced_ || !begun() || doing_.kind != Kind::kNone) return false;
  Roster probe = roster_;
  const Kind next = probe.next().kind;
  return next != Kind::kNone || (!started_ && serves_all(probe, next));
}

void ModelChief::act(Flight& flight) {
  const RosterAction action = roster_.next();
  started_ = started_ || serves_all(roster_, action.kind);
  if (action.kind == Kind::kNone) return;
  doing_ = action;
  if (action.kind == Kind::kPublish) return publish(flight);
  ++open_;
  if (action.kind == Kind::kFill) {
    fill_from_ = source_next_;
    Message fill{.kind = Message::Kind::kFill,
                 .from = number_,
                 .to = model::kFirstServer + action.server,
                 .home = action.home,
                 .order = order(action.process),
                 .state = {.log = {}, .counts = action.home == 0 ? source_ : model::Counts{}}};
    fill.order.set_serial(serial_);
    fill.state.log.forget_below(source_next_);
    return flight.push_back(std::move(fill));
  }
  const model::View::Home& home = roster_.view().homes(action.home);
  flight.push_back({.kind = Message::Kind::kCopy,
                    .from = number_,
                    .to = model::kFirstServer + home.primary(),
                    .home = action.home,
                    .term = action.term,
                    .order = order(home.primary_process())});
}

void ModelChief::publish(Flight& flight) {
  publishing_ = roster_.view();
  for (const int server : roster_.servers()) {
    ++open_;
    flight.push_back({.kind = Message::Kind::kSetView,
                      .from = number_,
                      .to = model::kFirstServer + server,
                      .process = roster_.process(server),
                      .view = publishing_});
  }
  if (open_ == 0) published();
}

void ModelChief::published() {
  doing_ = {};
  if (!roster_.is_delivered()) return;
  view_ = publishing_;
  roster_.announced();
}

// Returns whether all work that is not contained in what a server was filled with will be repeated.
bool ModelChief::replay() {
  const int64_t from = options_.without == Mend::kFillAgain ? std::max(fill_from_, kept_from_) : fill_from_;
  for (auto job = jobs_.begin() + from; job < jobs_.begin() + scheduled_; ++job) {
    if (job->state == Work::kRunning) job->again = true;
    if (job->state == Work::kDone) job->state = Work::kQueued;
  }
  if (from >= kept_from_) return true;
  if (source_next_ == fill_from_) violation_ = "work was forgotten that has to be repeated";
  return false;
}

void ModelChief::hear(const Message& answer) {
  if (fenced_) return;
  if (answer.answered == Message::Kind::kState) return hear_state(answer);
  if (answer.answered == Message::Kind::kForget) {
    if (to_tell_.empty()) program_ = Program::kRuns;
    return;
  }
  --open_;
  if (answer.answered == Message::Kind::kSetView) {
    const int server = answer.from - model::kFirstServer;
    const bool counts = answer.ok || options_.without == Mend::kAcknowledgedViews;
    if (counts) roster_.acknowledge(server, answer.process, answer.view.number());
    if (answer.refused) roster_.distrust(server, answer.process);
    if (open_ == 0) published();
    return;
  }
  const RosterAction action = std::exchange(doing_, {});
  if (answer.given_up) ++serial_;
  if (!answer.ok) return;
  if (action.kind == Kind::kFill && started_ && !replay()) return;
  roster_.carried_out(action);
}

// -- The program.

bool ModelChief::is_all_done() const {
  return std::all_of(jobs_.begin(), jobs_.end(),
                     [](const Job& job) { return job.state == Work::kDone || job.state == Work::kNone; });
}

bool ModelChief::idle() const {
  return !fenced_ && started_ && program_ == Program::kRuns && view_.number() > 0 && is_all_done();
}

bool ModelChief::may_schedule() const {
  if (!idle() || scheduled_ == options_.closures) return false;
  Roster probe = roster_;
  return !options_.settled || number_ > 0 || scheduled_ > 0 ||
         (doing_.kind == Kind::kNone && probe.next().kind == Kind::kNone);
}

bool ModelChief::may_collect() const {
  return idle() && (scheduled_ == options_.closures || (!has_saved_ && scheduled_ > source_next_));
}

void ModelChief::collect(Flight& flight) {
  program_ = Program::kCollects;
  collect_view_ = view_.number();
  // The others have nothing to forget.
  to_tell_ = {view_.homes(0).primary()};
  if (view_.homes(0).backup() >= 0) to_tell_.push_back(view_.homes(0).backup());
  flight.push_back({.kind = Message::Kind::kState,
                    .from = number_,
                    .to = model::kFirstServer + view_.homes(0).primary(),
                    .order = model::order_of(epoch_, collect_view_)});
}

// What is collected has every closure until now once, and nothing else.
void ModelChief::hear_state(const Message& answer) {
  program_ = Program::kRuns;
  if (!answer.ok || !is_all_done() || view_.number() != collect_view_) return;
  for (int64_t closure = 0; closure < model::kMostClosures; ++closure) {
    const int times = answer.state.counts.at(static_cast<std::size_t>(closure));
    if (times == (closure < scheduled_ ? 1 : 0)) continue;
    violation_ = c10::str("before closure ", scheduled_, " closure ", closure, " was applied ", times, " times");
  }
  done_ = scheduled_ == options_.closures;
  if (done_) return;
  collected_ = answer.state.counts;
  program_ = Program::kWrites;
}

void ModelChief::write(ModelDisk& disk) {
  if (scheduled_ > disk.next) {
    disk.next = scheduled_;
    disk.counts = collected_;
  }
  source_next_ = kept_from_ = scheduled_;
  source_ = collected_;
  has_saved_ = true;
  program_ = Program::kForgets;
}

// One server is told after the other.
bool ModelChief::may_tell(const Flight& flight) const {
  bool told = false;
  for (std::size_t i = 0; i < flight.size(); ++i) {
    told = told || (flight[i].awaited && flight[i].from == number_ && flight[i].kind == Message::Kind::kForget);
  }
  return !fenced_ && program_ == Program::kForgets && !told;
}

void ModelChief::tell(Flight& flight) {
  flight.push_back(
      {.kind = Message::Kind::kForget,
       .from = number_,
       .to = model::kFirstServer + to_tell_.back(),
       .closure = source_next_,
       .order = model::order_of(epoch_, options_.without == Mend::kForgetInOneView ? view_.number() : collect_view_)});
  to_tell_.pop_back();
}

// -- The worker.

std::optional<std::pair<int64_t, int>> ModelChief::take() {
  for (std::size_t i = 0; i < jobs_.size() && !fenced_; ++i) {
    if (jobs_[i].state != Work::kQueued) continue;
    jobs_[i].state = Work::kRunning;
    return std::pair(static_cast<int64_t>(i), ++jobs_[i].attempt);
  }
  return std::nullopt;
}

void ModelChief::finish(int64_t closure, int attempt) {
  Job& job = jobs_.at(static_cast<std::size_t>(closure));
  if (job.state != Work::kRunning || job.attempt != attempt) return;
  job.state = std::exchange(job.again, false) ? Work::kQueued : Work::kDone;
}

// What is not looked at again before it is set does not count. Of a coordinator that has been replaced only its worker
// looks at anything, which still pushes in its last view.
void ModelChief::put_in(KnownNumbers& numbers, const Given* given) const {
  model::put(numbers, fenced_, given != nullptr);
  if (fenced_ && given == nullptr) return;
  numbers.add_epoch(epoch_);
  numbers.add_view(epoch_, view_.number());
  if (view_.number() > 0) model::put(numbers, view_.homes(0).primary());
  if (fenced_) return;
  if (view_.number() > 0) model::put(numbers, view_.homes(0).backup());
  model::put(numbers, done_, started_, open_, doing_.kind, doing_.home, doing_.server);
  if (doing_.server >= 0) numbers.add_process(doing_.server, doing_.process);
  numbers.add_view(epoch_, doing_.term);
  if (doing_.kind == Kind::kPublish) numbers.add(publishing_);
  if (doing_.kind == Kind::kFill) model::put(numbers, fill_from_);
  numbers.add_fill_serial(epoch_, serial_);
  model::put(numbers, source_next_, kept_from_, scheduled_, has_saved_, program_);
  for (const int count : source_) model::put(numbers, count);
  if (program_ != Program::kRuns) numbers.add_view(epoch_, collect_view_);
  for (std::size_t i = 0; i < collected_.size() && program_ == Program::kWrites; ++i)
    model::put(numbers, collected_[i]);
  if (program_ != Program::kRuns) model::put(numbers, to_tell_.size());
  for (std::size_t i = 0; i < to_tell_.size() && program_ != Program::kRuns; ++i) model::put(numbers, to_tell_[i]);
  for (const Job& job : jobs_) model::put(numbers, job.state, job.again);
  // An attempt is only compared with that of what the worker brings.
  const bool has_closure = given != nullptr && given->closure >= 0;
  model::put(numbers, has_closure && jobs_.at(static_cast<std::size_t>(given->closure)).attempt == given->attempt);
  roster_.put_in(numbers);
}

}  // namespace cohort::simulation
