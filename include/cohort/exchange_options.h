// The options of the exchange of gradients and of what replicas share, and what an optimizer tells of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace cohort {

// The approximation of gradients by matrices of low rank, of which only the factors travel (Vogels et al., "PowerSGD",
// 2019, arXiv:1905.13727). The options are those of PyTorch's powerSGD_hook.
struct PowerSgdOptions {
  // The rank of the approximation, 1 or more: a larger one loses less and sends more.
  int64_t matrix_approximation_rank = 1;
  // The first updates, in which gradients travel as they are.
  int64_t start_power_sgd_iter = 1000;
  // A gradient is approximated if its factors have fewer elements than it has, by more than this factor.
  double min_compression_rate = 2.0;
  // With true, what a gradient has lost is added to the next one. Each worker keeps it, of the size of the parameters.
  bool use_error_feedback = true;
  // With true, a step begins with the factors of the one before; otherwise it draws some.
  bool warm_start = true;

  bool operator==(const PowerSgdOptions&) const = default;
};

// The options of every strategy's exchange; each strategy has its own struct.
struct ExchangeOptions {
  // The way in which tensors are summed: reduction_to_one_device, hierarchical_copy, ring, nccl, or auto, which is nccl
  // for several GPUs, ring for CPUs and for logical devices of one GPU, and reduction_to_one_device for a mix.
  std::string cross_device_ops = "auto";
  // The number of messages that the gradients are packed into; 0: one message for each tensor. InvalidArgument: it is
  // negative, or there are no messages (one replica, the ring of replicas on CPUs, central storage, parameter servers).
  int num_packs = 1;
  // The least bytes of a message, instead of num_packs; 0: num_packs decides. If neither is set, replicas on GPUs
  // exchange messages of 8 MiB while backward runs, and a last one of 1 MiB. InvalidArgument: both are set.
  int64_t bytes_per_pack = 0;
  // How gradients travel between replicas and between workers: none (as they are), bfloat16 or float16 (rounded to it,
  // added up in float32, and the sum is rounded once more), or power_sgd (by factors of low rank);
  // docs/multi-worker.md. It is the same on all workers. InvalidArgument: another name, or there are no messages.
  std::string gradient_compression = "none";
  // The options of power_sgd. InvalidArgument: some were given without it.
  PowerSgdOptions power_sgd = {};
  // Cores that an operation of one CPU replica, or an update of offloaded states, may use; 0: all cores, divided among
  // the replicas.
  int threads_per_replica = 0;
  // The longest wait for another replica, and of a GPU in a sum for another one.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
};

// Workers that update parameters of their own, by their own gradients, and exchange them now and then: local SGD
// (Stich, 2019, arXiv:1805.09767), after synchronous updates (Lin et al., 2020, arXiv:1808.07217), and DiLoCo
// (Douillard et al., 2023, arXiv:2311.08105) with AdamW, an outer_learning_rate of 0.7 and an outer_momentum of 0.9.
// docs/multi-worker.md.
struct LocalSgdOptions {
  // Updates from one exchange of the parameters to the next. 0: gradients are exchanged in every step.
  int64_t sync_every = 0;
  // The first updates, in which gradients are exchanged.
  int64_t start_iter = 0;
  // The rate of the outer step, whose gradient is the mean of what the workers have moved since the last one. 1:
  // without momentum the parameters become their mean.
  double outer_learning_rate = 1.0;
  // The momentum of the outer step, from 0 to below 1.
  double outer_momentum = 0.0;
  // With true, an outer step with momentum looks ahead, as Nesterov's.
  bool outer_nesterov = true;

  bool operator==(const LocalSgdOptions&) const = default;
};

// The states that replicas share instead of each having all of them (ZeRO, FSDP); docs/parallelism.md.
struct ShardingOptions {
  // 0: none. 1: the optimizer's slots, each replica those of its part. 2: the gradients, too, while backward runs. 3:
  // the parameters, too, from when an optimizer is made: units of them are gathered for the operations that use them.
  int stage = 0;
  // The axis along which the replicas share them, which carries the batch. NotFound: there is no such axis.
  std::string axis = "batch";
  // Stage 3: whether units are freed in the forward pass, too, and gathered once more for backward. Otherwise they stay
  // until backward has computed their gradients, and in evaluations until the next update.
  bool reshard_after_forward = true;
  // Stage 3: neighbouring units with less bytes of parameters are one. 0: none are put together.
  int64_t min_unit_bytes = int64_t{1} << 20;
  // Whether the states of a replica on a GPU lie in the host's memory and are updated there (ZeRO-Offload, Ren et al.,
  // 2021, arXiv:2101.06840): its part of the slots and of the summed gradients, and its part of the parameters, which
  // in stage 3 is there alone. Replicas on CPUs have theirs there in any case. InvalidArgument: the stage is 0.
  bool offload_states = false;
};

// The bytes of a training's states on that replica of this process that has most of them, counted from the tensors.
struct StateBytes {
  int64_t parameters = 0;  // its copy of the parameters, or its part and the units that it had at once in the last step
  int64_t gradients = 0;   // gradients, messages and sums that it had at once in the last step; 0 before the first one
  int64_t slots = 0;       // its part of the slots; replicas that reach each other's memory have them once
  // Bytes that are in none of these because they lie in the host's memory (ShardingOptions::offload_states): its part
  // of the parameters, of the summed gradients and of the slots. 0 for a replica on a CPU.
  int64_t offloaded = 0;
};

// The times at which the gradients of a step went to the other workers, in seconds since its backward began.
struct ExchangeTimeline {
  // One message.
  struct Message {
    int64_t bytes = 0;   // its size
    double ready = 0.0;  // all replicas of this worker had brought their gradients
    double begin = 0.0;  // it was sent
    double end = 0.0;    // the sum over all workers was there
  };
  double backward = 0.0;          // until its end
  std::vector<Message> messages;  // the messages in the order in which they were sent

  // Returns the share of the time of communication during which backward ran: 0 to 1, 0 without messages.
  double hidden() const;
};

}  // namespace cohort
