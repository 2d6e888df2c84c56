// Passage: the call of a function for one microbatch, on a thread that goes on and stops as the stages say.
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "cohort/strategy.h"
#include "ops/plain_operation.h"
#include "strategy/absent.h"
#include "strategy/replica_scope.h"
#include "wings/pipeline/base/wake_place.h"
#include "wings/pipeline/strategy/chunk_backward.h"
#include "wings/pipeline/strategy/pipeline_run.h"

namespace cohort {

class Passage final : public ReplicaScope {
 public:
  explicit Passage(at::Generator generator) : generator_(std::move(generator)) {}

  // Prepares a call for a part of the share; serve() makes it.
  void prepare(std::shared_ptr<PipelineRun> run, const detail::SharePart& part);
  // The thread of the call: returns when it has ended.
  void serve();

  // A stage's end. Lets the function compute a chunk, with these stages that have nothing to do, and waits until it
  // has.
  void advance(int chunk, const std::vector<int>& idle);
  // Does the backward pass of a chunk, or its halves.
  void backward(int chunk, bool whole);
  void weights(int chunk);
  // Waits until the chunk before has sent its output, or the one behind the gradient of its input.
  void receive(int chunk, bool gradient);
  void send(int chunk, bool gradient);
  // Takes what another process has sent: the input of a chunk, or the gradients of its output.
  void arrive(int chunk, bool gradient, std::vector<torch::Tensor> values);
  // Returns whether the function has come through the first chunk, once it has ended.
  bool passed_first() const { return current_ > 0; }
  // Returns the tensors that the process's chunks have used, once the function has ended.
  const TensorsUsed& used() const { return used_; }
  // Returns whether random numbers were asked for, once the function has ended.
  bool has_drawn() const { return seeded_; }
  // Returns whether the call has ended; the run's mutex is held.
  bool ended() const { return ended_; }
  void wake_all();
  void release();  // what a run has left

  int64_t examples() const override { return part_.begin < 0 ? -1 : part_.end - part_.begin; }
  at::Generator& generator() override;
  Communicator& group(std::string_view axis) override;
  std::vector<torch::Tensor> at_cut(const std::vector<torch::Tensor>& values) override;
  bool begins_at(std::string_view name) override;
  void minimize(LaterStep step) override;
  void after_step(std::function<void(const Replica&)> act) override;
  bool elsewhere() const override { return elsewhere_; }
  void note_use(const torch::Tensor& tensor) override;
  void note_change(const torch::Tensor& tensor) override;

 private:
  struct Chunk {
    ChunkGraph graph;
    std::vector<torch::Tensor> gradients;  // of the outputs
    std::unique_ptr<ChunkBackward> backward;
    std::vector<torch::Tensor> arrived;  // the input that another process has sent, and behind it the random stream
    torch::Tensor random;                // the stream at the chunk's end, for another process; undefined: as it began
    bool sent = false;                   // the output
    bool gradient_sent = false;          // of the input
  };

  Chunk& at(int chunk) { return chunks_[static_cast<std::size_t>(chunk)]; }
  void end(const std::exception_ptr& error);
  // Fails unless the function may compute the chunk.
  void require_allowed(int chunk);
  // The chunk's loops are divided among the stages that have nothing to do, if there are any.
  void begin_team();
  void require_cut(const char* when) const;
  template <typename Ready>
  void wait_in_stage(std::unique_lock<std::mutex>& lock, std::condition_variable& wake, int chunk, const char* what,
                     const Ready& ready);
  void turn_back();
  void set_elsewhere(bool elsewhere);
  std::vector<torch::Tensor> take_arrived(std::size_t count);
  void send_away(int chunk, bool gradient);

  std::shared_ptr<PipelineRun> run_;
  detail::SharePart part_;
  at::Generator generator_;
  std::condition_variable wake_;
  std::condition_variable back_;  // wakes the stage that waits for it
  WakePlace place_;
  std::vector<Chunk> chunks_;
  int allowed_ = -1;                        // the last chunk that the function may compute
  const std::vector<int>* idle_ = nullptr;  // the stages that have nothing to do meanwhile
  std::optional<LoopTeam> team_;            // of the chunk that it is in, made and used by its thread
  int current_ = 0;                         // the chunk that it is in, used by its thread
  int done_ = -1;                           // the last one that it has ended
  bool ended_ = false;
  bool minimized_ = false;
  bool seeded_ = false;     // or the stream is the replica's own
  bool elsewhere_ = false;  // the function is in a chunk of another process
  const InputWatch input_watch_{.key = kAbsentKey, .note = [this](const torch::Tensor& input) { note_use(input); }};
  TensorsUsed used_;
  std::set<std::string> places_;  // where it came through and no chunk begins
  std::set<std::string> begun_;   // where chunks begin by PipelineOptions::cut
};

}  // namespace cohort
