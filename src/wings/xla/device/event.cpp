// Waiting with a deadline. PJRT's own wait has none, so the plugin calls back, from a thread of its own, and a wait
// here is one for a condition variable. An event belongs to its callback from then on, which destroys it.
#include "wings/xla/device/event.h"

#include <atomic>

#include "base/fail.h"

namespace cohort {

OwnedEvent::~OwnedEvent() {
  if (event_ == nullptr) return;
  pjrt::EventDestroyArgs args;
  args.event = event_;
  plugin_->release(&pjrt::Api::event_destroy, "PJRT_Event_Destroy", args);
}

// What a callback gets.
struct XlaEvent::State::Watched {
  Watched(std::shared_ptr<State> state, OwnedEvent event) : state(std::move(state)), event(std::move(event)) {
    made.store(true, std::memory_order_release);
  }

  const std::shared_ptr<State> state;
  const OwnedEvent event;
  // Written last and read first: the plugin hands this from one thread to another, which the thread sanitizer does not
  // see.
  std::atomic<bool> made = false;
};

XlaEvent::State::State(XlaPluginPtr plugin, const std::vector<pjrt::Event*>& events, std::string what,
                       std::shared_ptr<XlaProcesses> processes)
    : plugin_(std::move(plugin)), what_(std::move(what)), processes_(std::move(processes)) {
  for (pjrt::Event* const event : events) {
    if (event != nullptr) unwatched_.emplace_back(plugin_, event);
  }
  pending_ = unwatched_.size();
}

void XlaEvent::State::on_ready(pjrt::Error* error, void* watched) {
  const std::unique_ptr<Watched> own(static_cast<Watched*>(watched));
  own->made.load(std::memory_order_acquire);
  own->state->finish(own->state->plugin_->error_of(error, own->state->what_));
}

void XlaEvent::State::watch() {
  std::vector<OwnedEvent> events;
  {
    const std::lock_guard lock(mutex_);
    events.swap(unwatched_);
  }
  for (OwnedEvent& event : events) {
    auto watched = std::make_unique<Watched>(shared_from_this(), std::move(event));
    pjrt::EventOnReadyArgs args;
    args.event = watched->event.get();
    args.callback = &State::on_ready;
    args.user_arg = watched.get();
    try {
      plugin_->call(&pjrt::Api::event_on_ready, "PJRT_Event_OnReady", args);
      watched.release();  // NOLINT(bugprone-unused-return-value): the callback has it
    } catch (const Error&) {
      finish(std::current_exception());
    }
  }
}

void XlaEvent::State::finish(std::exception_ptr error) {
  std::vector<torch::Tensor> freed;  // after the lock
  {
    const std::lock_guard lock(mutex_);
    if (error && !error_) error_ = std::move(error);
    if (--pending_ == 0) freed.swap(kept_);
  }
  changed_.notify_all();
}

bool XlaEvent::State::ready() {
  watch();
  const std::lock_guard lock(mutex_);
  return pending_ == 0 || error_;
}

// Returns whether it came. What a device is to have from a process that is gone never comes, and the device does not
// say so: the other processes do.
bool XlaEvent::State::wait_for_end(std::unique_lock<std::mutex>& lock, const Deadline& deadline) {
  const auto ended = [&] { return pending_ == 0 || error_; };
  if (processes_ == nullptr) return changed_.wait_until(lock, deadline.when(), ended);
  constexpr std::chrono::milliseconds kLook(100);
  while (!changed_.wait_until(lock, std::min(deadline.when(), Deadline::Clock::now() + kLook), ended)) {
    if (const std::optional<std::string> reason = processes_->failure()) {
      fail<Unavailable>(plugin_->speaker(), ": ", what_, " cannot end, because ", *reason);
    }
    if (deadline.passed()) return false;
  }
  return true;
}

void XlaEvent::State::wait(const Deadline& deadline) {
  watch();
  std::unique_lock lock(mutex_);
  if (!wait_for_end(lock, deadline)) {
    fail<DeadlineExceeded>(plugin_->speaker(), ": waited ", to_text(deadline.limit()), " for ", what_,
                           ", which has not ended");
  }
  if (error_) std::rethrow_exception(error_);
}

void XlaEvent::State::keep(const torch::Tensor& tensor) {
  {
    const std::lock_guard lock(mutex_);
    if (pending_ == 0) return;
    kept_.push_back(tensor);
  }
  watch();
}

bool XlaEvent::ready() const {
  return state_ == nullptr || state_->ready();
}

void XlaEvent::wait(const Deadline& deadline) const {
  if (state_ != nullptr) state_->wait(deadline);
}

}  // namespace cohort
