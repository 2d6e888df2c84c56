// Hosts: the processes whose devices run programs together, as those of a TPU pod. Each records for its own devices,
// and a program begins on all of them or on none: a device that waits for one which has begun something else waits
// without an end. So whatever is to begin together is agreed on before.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "wings/xla/record/graph.h"

namespace cohort::record {

class Program;

// What the processes say to each other. Each call is one of all of them, in the same order, by one thread at a time.
// Unavailable names one that is gone, FailedPrecondition one that does something else, DeadlineExceeded one that does
// not come.
class Hosts {
 public:
  using Numbers = std::array<int64_t, 2>;

  virtual ~Hosts() = default;

  // Returns what every process has said, in the order of their numbers.
  virtual std::vector<Numbers> gather(const std::string& what, const Numbers& mine) = 0;
  virtual std::vector<std::string> gather_texts(const std::string& mine) = 0;
  // Makes tensors of the host the sums over the processes.
  virtual void sum(std::span<torch::Tensor> tensors) = 0;
  // Returns the name of a process, such as "worker 1".
  virtual std::string name(int host) const = 0;
};

// Agrees on the program that the devices of all processes are about to begin; null: those of this process have recorded
// different ones. `sums` are the types of what is to be summed over all devices. Returns false where the processes have
// recorded different programs because they were given values of other shapes: then each device runs its own, and the
// sums are made on the hosts. FailedPrecondition: from values of the same shapes they have recorded different programs,
// or they wait for other sums; the message names the processes, both programs and the first thing that differs.
bool agree_on_program(Hosts& hosts, const Program* program, std::span<const TensorType> sums);

// Agrees on how many steps of a program begin as one loop. FailedPrecondition: the processes differ, as they do when
// one of them reads a value in the middle of a loop.
void agree_on_steps(Hosts& hosts, const Program& program, int64_t steps);

}  // namespace cohort::record
