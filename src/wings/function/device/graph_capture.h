// GraphCapture: captures what a thread gives a device as a graph that can be run again without the thread's operations.
// What the host has to do anew each time, such as an exchange with other replicas, is a part of it: there the graph is
// in two segments. What it can do before a segment begins, such as to write numbers that the segment reads, or when it
// has been given to the device, cuts nothing. What devices do together, such as an exchange of gradients that is
// captured, needs graphs of all of them at the same time: there a segment has company.
//
//   GraphCapture capture(device, {generator}, "step");
//   step(x);                               // calls capture.part() for what is no operation of the device
//   CapturedWork work = capture.finish();  // the step is done
//   work.run();                            // and once more, with what is in x now
#pragma once

#include <ATen/core/Generator.h>
#include <c10/util/Exception.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tracer.h"
#include "device/device_graph.h"
#include "wings/function/device/found_tensors.h"

namespace cohort {

// Something that cannot be a part of a graph was met while one was captured.
class NotCapturable : public NotTraceable {
 public:
  using NotTraceable::NotTraceable;
};

// The graphs of other replicas that a graph needs beside it, because they wait for each other on their devices.
struct GraphCompany {
  // A meeting of the replicas: returns whether each of them is about to run its graph of this company.
  std::function<bool()> agree;
  // A meeting of the replicas, which come for the same segment: calls the function, which gives the device the segment,
  // when all have come, and returns when all have given theirs. Throws what the devices' work has come to grief by.
  std::function<void(const std::function<void()>& replay)> launch;
  // Returns whether the graphs of all others are still there.
  std::function<bool()> is_whole;
};

// One thread at a time.
class CapturedWork {
 public:
  // Does the work once more, behind all that the calling thread has given the device. Tensors that it made while it was
  // captured have new values then. Returns false, and has done nothing, if it has company which does not run now.
  bool run();

  // Returns whether all that the work needs is still there, as it was: the tensors from before that it reads or writes,
  // the gradients that it left in tensors, numbers of the host that it has as constants, the owners of its parts.
  // Otherwise it must not be run.
  bool is_current() const;

 private:
  friend class GraphCapture;
  // In this order: what is done before the segment, the segment, what is done when the device has got it, and the part
  // of the host that ends it.
  struct Stage {
    std::vector<HostStage> before;
    std::optional<std::size_t> segment;  // unset: it had no work
    std::shared_ptr<const GraphCompany> company;
    std::vector<HostStage> behind;
    HostStage host;  // without an act at the end
  };
  static void act(const std::vector<HostStage>& all);
  void launch(const Stage& stage) const;

  std::vector<Stage> stages_;           // what the graph needs of others goes after it
  std::unique_ptr<DeviceGraph> graph_;  // of these stages
  FoundTensors found_;
  torch::Tensor marker_;  // what a segment without other work writes to
};

class WatchedOperations;

// One thread's. While it captures, backward passes that the thread begins are captured, too.
class GraphCapture final : public Tracer {
 public:
  // Begins. `generators` are those that the work may draw from, besides LibTorch's own one of the device; `what` names
  // the work in messages; `steps` makes those of optimizers. Unimplemented: work of the device cannot be captured.
  GraphCapture(torch::Device device, const std::vector<at::Generator>& generators, std::string what,
               const StepEngine* steps = nullptr);
  // Gives up what was not finished.
  ~GraphCapture() override;

  // Returns the capture that the calling thread is in; null outside of one, and in its parts.
  static GraphCapture* current();
  // Calls what gives the device nothing, with current() being null.
  static void outside(const std::function<void()>& act);

  // NotCapturable.
  void refuse(std::string_view what) const override;
  torch::Device traced_device() const override { return device_; }
  void on_host(HostStage stage) override { part(std::move(stage)); }
  const StepEngine* steps() const override { return steps_; }

  // Ends a segment here, gives it to the device, and does the part, now and in each run in this place.
  void part(HostStage host);
  // Does something in each run before the segment that is being captured begins, and before the device gets it now.
  void before(HostStage host);
  // Does something in each run when the device has got the segment that is being captured.
  void behind(HostStage host);
  // Has the segment that is being captured run in company, which it has once. The graphs of the company agree on each
  // run before it begins, so the first part that meets others has to be in such a segment.
  void join(std::shared_ptr<const GraphCompany> company);
  // Returns whether the segment that is being captured has company, and whether any has so far.
  bool has_company() const { return company_ != nullptr; }
  bool has_joined() const { return has_joined_; }
  // Returns how many segments have ended.
  std::size_t segments() const { return segments_; }
  // Returns something that lives as long as this capture.
  std::shared_ptr<const void> token() const;
  void note_kernel(std::span<const torch::Tensor> tensors) override;
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
  void require_no_copies() const;
  void act(const std::vector<HostStage>& all);

  torch::Device device_;
  std::string what_;
  const StepEngine* steps_;
  std::shared_ptr<WatchedOperations> operations_;
  std::unique_ptr<Watching> watching_;  // null in a part, and at the end
  CapturedWork work_;
  std::size_t segments_ = 0;
  std::vector<HostStage> before_;  // of the segment that is being captured
  std::shared_ptr<const GraphCompany> company_;
  std::vector<HostStage> behind_;
  bool has_joined_ = false;
  bool in_part_ = false;
};

}  // namespace cohort
