// The state of an XlaEvent: events of PJRT, and what is held until they have happened.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "wings/xla/device/client.h"

namespace cohort {

// An event of the plugin's, which is destroyed with this.
class OwnedEvent {
 public:
  OwnedEvent(XlaPluginPtr plugin, pjrt::Event* event) : plugin_(std::move(plugin)), event_(event) {}
  OwnedEvent(OwnedEvent&& other) noexcept
      : plugin_(std::move(other.plugin_)), event_(std::exchange(other.event_, nullptr)) {}
  OwnedEvent(const OwnedEvent&) = delete;
  OwnedEvent& operator=(const OwnedEvent&) = delete;
  ~OwnedEvent();

  pjrt::Event* get() const { return event_; }

 private:
  XlaPluginPtr plugin_;
  pjrt::Event* event_;
};

// Several events, waited for as one. The plugin is asked to call back when the first wait, or keep(), makes it
// necessary.
class XlaEvent::State : public std::enable_shared_from_this<XlaEvent::State> {
 public:
  // Takes the events over. Null ones have happened. `what` is for messages: "the launch of step".
  // With processes, a wait hears that one of them is lost: Unavailable with their reason.
  State(XlaPluginPtr plugin, const std::vector<pjrt::Event*>& events, std::string what,
        std::shared_ptr<XlaProcesses> processes = nullptr);

  bool ready();
  void wait(const Deadline& deadline);
  // Holds the tensor until all have happened.
  void keep(const torch::Tensor& tensor);

 private:
  struct Watched;

  static void on_ready(pjrt::Error* error, void* watched);
  void watch();
  bool wait_for_end(std::unique_lock<std::mutex>& lock, const Deadline& deadline);
  void finish(std::exception_ptr error);

  const XlaPluginPtr plugin_;
  const std::string what_;
  const std::shared_ptr<XlaProcesses> processes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<OwnedEvent> unwatched_;
  std::size_t pending_ = 0;
  std::exception_ptr error_;  // the first one
  std::vector<torch::Tensor> kept_;
};

}  // namespace cohort
