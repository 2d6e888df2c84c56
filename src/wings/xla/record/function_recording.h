// A function's recording: what a piece of a program records on one device, as a program that can be run again. Tensors
// that were there before are captured by reference: each run reads the value that the tensor has then, and what the
// function wrote to it is written again. Random streams are such tensors.
//
//   FunctionRecording trace(recording_of(device), "the function step");
//   const torch::Tensor x = trace.argument({torch::kFloat, {32, 10}}, false);
//   std::vector<torch::Tensor> results{step(x)};
//   const std::shared_ptr<Plan> plan = trace.finish(std::move(results));
//   plan->run({batch});
#pragma once

#include <c10/core/TensorImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/tracer.h"
#include "wings/xla/record/cell.h"
#include "wings/xla/record/recorder.h"
#include "wings/xla/record/repetition.h"

namespace cohort::record {

// A part of a function whose numbers the host computes anew for each run, such as an optimizer's update.
struct HostPart {
  // A part that was recorded again, as far as needed to know its numbers.
  struct Again {
    std::vector<torch::Tensor> written;  // the tensors that it wrote to
    // For each number of the part the number of this recording that it is, both as LiftedNumbers counts them, where
    // what is alike is recorded once. Empty: all are recorded, in the same order.
    std::vector<std::size_t> numbers;
  };
  // Records the part once more, with the numbers of now, on tensors that stand for those that it has, and counts what
  // it counts. Returns nothing if the part cannot be any more.
  std::function<std::optional<Again>()> again;
  // Takes back what was counted.
  std::function<void()> undo;
  // Is called when a run has begun, and may read what it has written. Empty: nothing is to be done.
  std::function<void()> after = {};
};

// A program with what it reads and writes. One thread at a time.
class Plan {
 public:
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // Begins to run the program and returns its results, in finish()'s order; they have no gradients. The arguments are
  // of the types that argument() was given. FailedPrecondition: an argument shares its memory with a tensor that the
  // function writes; it is not current; others as Recording::flush().
  std::vector<torch::Tensor> run(std::span<const torch::Tensor> arguments);

  // Runs plans of several devices, with the arguments of each, as one program, which may have sums over them.
  // Unimplemented: they are not the same program.
  static std::vector<std::vector<torch::Tensor>> run_together(std::span<Plan* const> plans,
                                                              std::span<const std::vector<torch::Tensor>> arguments);
  // Returns whether a run writes to the argument.
  bool writes_argument(std::size_t i) const { return argument_written_[i]; }
  // Returns whether the program has sums over replicas.
  bool has_sums() const { return program_->has_sums(); }

  // Takes the numbers of the next run from the function's parts (FunctionRecording::add_part), which count it. Returns
  // false if a part would record something else now: then nothing is counted, and the function is to be recorded again.
  bool renew_numbers();
  // Takes back the count, where the run has failed.
  void undo_numbers();
  // Lets the parts look at what the run has made (HostPart::after).
  void settle();

  const std::shared_ptr<const Program>& program() const { return program_; }
  int device() const { return recording_.device(); }

  // Returns whether the recording left tensors behind that it made (gradients of parameters, slots), other than its
  // results. A function that finds them at its next call may record something else then.
  bool leaves_tensors() const { return !left_.empty(); }
  // Returns whether these, and all tensors from before that the program reads or writes, still live, and the gradients
  // are the tensors that the recording left. Otherwise the function cannot mean the same tensors any more, and is to be
  // recorded again.
  bool is_current() const;
  // Gives these tensors their values without a run: from the present values of what the function read, and zeros where
  // they depend on its arguments.
  void settle_left_tensors();

 private:
  friend class FunctionRecording;
  // A tensor's memory from before the recording. The plan does not keep it: whoever gives it up and makes another one
  // has changed what the function is about.
  struct Captive {
    uint64_t id = 0;
    Cell* cell = nullptr;  // during a run
    Strided root;
    bool written = false;
    std::weak_ptr<Node> placeholder;  // what stood for its value
  };
  // A tensor that the recording made and left. Each run gives it the value that the program has for it.
  struct Left {
    uint64_t id = 0;
    Strided root;
    Value value;  // as it was recorded, until the first run
  };
  // A tensor from before the recording that gradients add up in: which tensor was its gradient when the function first
  // used it, and which is in the end.
  struct Leaf {
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
    std::optional<uint64_t> before;
    std::optional<uint64_t> after;
  };
  // Where an input of the program comes from.
  struct Source {
    enum class Kind { kArgument, kCaptive, kConstant };
    Kind kind = Kind::kConstant;
    std::size_t index = 0;
  };
  struct Result {
    bool on_device = false;
    Strided view;
    torch::Tensor host;  // what it is where it is not on the device
  };
  struct Given;
  // The numbers of a part: for each the vector and the element, or -1 if the program has no use for it.
  struct Part {
    HostPart host;
    std::vector<std::pair<int, int64_t>> places;
    std::shared_ptr<const Program> recorded;  // what it recorded
    Repetition repetition;                    // what it records again
    int failed = 0;                           // how often that could not be repeated
  };
  // The numbers of one dtype, which are an input of the program.
  struct Numbers {
    torch::ScalarType dtype = torch::kFloat;
    std::vector<at::Scalar> values;
    std::shared_ptr<DeviceData> placed;  // the same on the device, from the first run with them
  };
  static std::vector<std::vector<torch::Tensor>> launch(std::span<Plan* const> plans,
                                                        std::span<const std::vector<torch::Tensor>> arguments,
                                                        bool together);
  bool renew(Part& part, std::vector<Numbers>& numbers) const;
  bool repeat(Part& part, std::vector<Numbers>& numbers, bool& is_gone) const;

  Plan(Recording& recording, std::string what) : recording_(recording), what_(std::move(what)) {}
  void check_apart(std::span<const torch::Tensor> arguments) const;
  Given leaves(std::span<const torch::Tensor> arguments);
  std::vector<std::shared_ptr<DeviceData>> inputs(GraphRunner& runner, const Given& given);
  bool is_shared(const Captive& captive) const;
  std::shared_ptr<DeviceData> copy_of(GraphRunner& runner, const Value& leaf) const;
  std::vector<torch::Tensor> take(std::vector<std::shared_ptr<DeviceData>> data,
                                  std::span<const torch::Tensor> arguments);
  Cell* find(uint64_t id) const;
  void find_captives();
  // Gives the tensors that the recording left zeros, which can be computed at any time, until the first run.
  void clear_left_tensors();
  bool has_its_gradient(const Leaf& leaf) const;

  Recording& recording_;
  std::string what_;
  std::shared_ptr<const Program> program_;
  std::vector<Source> sources_;  // of the program's inputs of the kind kData
  std::vector<Captive> captives_;
  // What the function itself has given up lives until the first run.
  std::vector<c10::Storage> kept_;
  std::vector<torch::Tensor> constants_;
  std::vector<Numbers> numbers_;
  std::vector<TensorType> arguments_;
  std::vector<std::weak_ptr<Node>> argument_placeholders_;
  std::vector<bool> argument_written_;
  std::vector<Result> results_;
  std::vector<Left> left_;
  std::vector<Leaf> leaves_;
  std::vector<Part> parts_;
};

// While it lives, what this thread (and LibTorch's thread of the device) records on the device belongs to the function.
// Values cannot be read (Recording::Capturing), and other devices of the type XLA cannot be used. The tensors that the
// function wrote have their values of before when it ends. Without finish() the tensors that it made are settled, too.
class FunctionRecording final : public Tracer {
 public:
  // `what` is for messages, such as "the function step"; `steps` makes the steps of optimizers. FailedPrecondition:
  // another one lives for the device.
  FunctionRecording(Recording& recording, std::string what, const StepEngine* steps = nullptr);
  ~FunctionRecording() override;

  torch::Device traced_device() const override;
  // Collectives of the host read values, which is refused there.
  void refuse(std::string_view /*what*/) const override {}
  // Does it once: a run has nothing of the host's but add_part().
  void on_host(HostStage stage) override { stage.act(); }
  void note_kernel(std::span<const torch::Tensor> /*tensors*/) override {}
  const StepEngine* steps() const override { return steps_; }

  // Makes the tensor that stands for an argument.
  torch::Tensor argument(const TensorType& type, bool requires_grad);

  // Ends the recording. The results are those of the function; an undefined tensor and one of the host come back as
  // they are. Whoever calls gives up all other references to them before. InvalidArgument: an argument got a gradient.
  std::shared_ptr<Plan> finish(std::vector<torch::Tensor> results);

  // The function that is being recorded on this thread uses a tensor of the cell.
  static void note_tensor(const Cell& cell, const torch::Tensor& tensor);
  // Returns whether a function is being recorded on this thread.
  static bool is_tracing();
  // Returns the device for which it is recorded; nothing if none is.
  static std::optional<torch::Device> device_of_trace();
  // Calls first(), within a function that is being recorded on this thread: the numbers in it are renewed for each run.
  // What it counts is counted by the caller, and taken back by undo() when the recording ends.
  static void add_part(const std::function<void()>& first, HostPart part);

 private:
  friend class Recording;
  // A tensor from before, with what it was.
  struct Touched {
    c10::Storage storage;
    Cell* cell = nullptr;
    Value value;
    Strided root;
    std::shared_ptr<Node> placed;
    Value placeholder;
  };
  struct Outputs;

  void touch(Cell& cell);
  void put_back();
  void note_arguments(Plan& plan, Outputs& outputs) const;
  void note_results(Plan& plan, Outputs& outputs, const std::vector<torch::Tensor>& results) const;
  void note_captives(Plan& plan, Outputs& outputs);
  void note_left(Plan& plan, Outputs& outputs) const;
  void note_gradients(Plan& plan) const;
  void note_parts(Plan& plan, const Captured& captured);
  void note_sources(Plan& plan, const Captured& captured) const;

  Recording& recording_;
  const std::string what_;
  const StepEngine* steps_;
  const Recording::Capturing capturing_;
  std::size_t sums_ = 0;     // how many sums over replicas were waited for before
  uint64_t first_ = 0;       // the number of the first cell that was made since
  torch::Tensor bystander_;  // a tensor of the device that the function does not use
  std::vector<torch::Tensor> arguments_;
  std::vector<Value> argument_values_;
  std::unordered_map<Cell*, std::size_t> place_;  // in touched_
  std::vector<Touched> touched_;
  std::unordered_map<c10::TensorImpl*, Plan::Leaf> leaves_;
  struct Part {
    HostPart host;
    std::vector<std::shared_ptr<Node>> numbers;
  };
  std::vector<Part> parts_;
};

}  // namespace cohort::record
