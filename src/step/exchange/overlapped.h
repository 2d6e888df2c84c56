// OverlappedExchange: the sums of this worker's gradients go to the other workers in buckets, last layers first, while
// backward still computes those of the layers before them (Li et al., PyTorch Distributed, VLDB 2020). The replicas'
// gradients of a bucket are added up in shared memory by whoever brings the last one.
#pragma once

#include <torch/types.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "cohort/optimizer.h"
#include "collective/gradient_wire.h"
#include "collective/packs.h"
#include "collective/process/process_communicator.h"
#include "step/exchange/watched_backward.h"
#include "step/flat_parameters.h"

namespace cohort {

class OverlappedExchange {
 public:
  // The other workers, and how gradients travel to them.
  struct Workers {
    ProcessCommunicator& group;
    GradientWire wire;
  };

  // `sums`: flat, one a group, where the results come to. `packs`: its buckets, [group].
  OverlappedExchange(const Workers& workers, FlatParameters& flat, int replicas, const std::vector<torch::Tensor>& sums,
                     const std::vector<std::vector<Pack>>& packs);
  OverlappedExchange(const OverlappedExchange&) = delete;
  OverlappedExchange& operator=(const OverlappedExchange&) = delete;
  ~OverlappedExchange();

  // Runs backward; gradients leave as they come. FailedPrecondition: one comes twice (reentrant backward).
  void backward(int local_id, const torch::Tensor& loss);
  // Brings the gradients that have not left yet, undefined ones for zero.
  void complete(int local_id, const std::vector<torch::Tensor>& gradients);
  // To be called once a step, after complete() of all replicas. Returns when the sums of all workers are there.
  void wait();

  // Returns when the messages of the last step left that began with backward(), as replica 0 sees it.
  ExchangeTimeline timeline() const;

 private:
  using Clock = std::chrono::steady_clock;

  struct Piece {  // a part of one parameter
    std::size_t parameter;
    int64_t begin;
    int64_t size;
  };
  struct Bucket {
    torch::Tensor message;
    torch::Tensor sent;  // the message as it travels
    std::vector<Piece> pieces;
    std::atomic<int64_t> missing;  // pieces, of all replicas
    bool ready = false;
    Clock::time_point ready_at;
    std::optional<Work<>> sum;  // nothing before it leaves
  };
  struct Given {  // the gradients that one replica has given in this step
    std::vector<torch::Tensor> gradients;
    std::vector<char> came;
  };

  void plan(const std::vector<torch::Tensor>& sums, const std::vector<std::vector<Pack>>& packs);
  void give(int local_id, std::size_t parameter, const torch::Tensor& gradient);
  void add_up(Bucket& bucket) const;
  void send_ready();
  void require_well() const;
  void note_timeline();
  void begin_anew();

  Workers workers_;
  FlatParameters& flat_;
  int replicas_;
  std::deque<Bucket> buckets_;                    // the buckets in the order in which they leave
  std::vector<std::vector<Bucket*>> buckets_of_;  // [parameter]
  std::vector<Given> given_;                      // [replica]
  WatchedBackward watched_;

  mutable std::mutex mutex_;
  std::size_t next_ = 0;  // bucket to leave
  std::exception_ptr error_;
  Clock::time_point backward_begin_, backward_end_;
  ExchangeTimeline timeline_;
};

}  // namespace cohort
