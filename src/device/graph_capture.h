// GraphCapture: captures what a thread gives a device as a graph that can be run again without the thread's operations.
// What the host has to do anew each time, such as an optimizer's update, which has other numbers in each step and an
// exchange with other replicas, is a part of it: there the graph is in two segments.
//
//   GraphCapture capture(device, {generator}, "step");
//   step(x);                               // calls capture.part() for what is no operation of the device
//   CapturedWork work = capture.finish();  // the step is done
//   work.run();                            // and once more, with what is in x now
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/Exception.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/error.h"
#include "device/device_graph.h"

namespace cohort {

// Something that cannot be a part of a graph was met while one was captured.
class NotCapturable : public FailedPrecondition {
 public:
  using FailedPrecondition::FailedPrecondition;
};

// What the host does between two segments.
struct HostStage {
  std::function<void()> act;
  // Who has to live for it; unset: nobody.
  std::optional<std::weak_ptr<const void>> owner = std::nullopt;
};

// One thread at a time.
class CapturedWork {
 public:
  // Does the work once more, behind all that the calling thread has given the device. Tensors that it made while it was
  // captured have new values then.
  void run();

  // Returns whether all that the work needs is still there: the tensors from before that it reads or writes, the
  // gradients that it left in tensors, the owners of its parts. Otherwise it must not be run.
  bool is_current() const;

 private:
  friend class GraphCapture;
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

  struct Stage {
    std::optional<std::size_t> segment;  // unset: it had no work
    HostStage host;                      // what is done behind it; without an act at the end
  };

  std::unique_ptr<DeviceGraph> graph_;
  std::vector<Stage> stages_;
  std::vector<WeakStorage> needed_;
  torch::Tensor marker_;  // what a segment without other work writes to
};

class WatchedOperations;

// One thread's. While it captures, backward passes that the thread begins are captured, too.
class GraphCapture {
 public:
  // Begins. `generators` are those that the work may draw from, besides LibTorch's own one of the device; `what` names
  // the work in messages. Unimplemented: work of the device cannot be captured.
  GraphCapture(torch::Device device, const std::vector<at::Generator>& generators, std::string what);
  GraphCapture(const GraphCapture&) = delete;
  GraphCapture& operator=(const GraphCapture&) = delete;
  // Gives up what was not finished.
  ~GraphCapture();

  // Returns the capture that the calling thread is in; null outside of one, and in its parts.
  static GraphCapture* current();
  // Throws NotCapturable where the calling thread captures: `what` is done by the host, with other threads or
  // processes.
  static void refuse(std::string_view what);

  torch::Device device() const { return device_; }

  // Ends a segment here, gives it to the device, and does the part, now and in each run in this place.
  void part(HostStage host);
  // Returns a number of the device, a scalar, that has the value of `value()` in each run.
  torch::Tensor number(const std::function<double()>& value, torch::ScalarType dtype,
                       std::optional<std::weak_ptr<const void>> owner = std::nullopt);

  // Ends the capture, with which all of the work has been given to the device once. NotCapturable.
  CapturedWork finish();

  // Throws NotCapturable for an error of LibTorch that has ended the capture, and says what it comes from. Returns if
  // it comes from a part, which is not captured.
  void explain(const c10::Error& error) const;

 private:
  class Watching;

  void begin();
  void end(HostStage host);

  torch::Device device_;
  std::string what_;
  std::shared_ptr<WatchedOperations> operations_;
  std::unique_ptr<Watching> watching_;  // null in a part, and at the end
  CapturedWork work_;
  std::size_t segments_ = 0;
  bool in_part_ = false;
};

// Does something of which a graph has to know nothing, now, and in each run of a graph that is being captured.
void outside_of_graph(HostStage host);

}  // namespace cohort
