// SharedSum: a flat tensor of every rank, of which those of one machine lie in memory that its ranks share. Each of
// them adds up a slice of all of theirs, so that no data is sent within a machine; with several machines one rank of
// each sends the sums.
#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/shared_memory.h"
#include "collective/transport.h"

namespace cohort {

class ProcessCommunicator;

// Returns a text that is the same in all processes of this machine. Containers on it, and hosts that are network
// namespaces, are machines of their own.
std::string this_machine();

class SharedSum {
 public:
  // What the elements are, and as what the sums of a machine are sent to the others: their own, or a half type.
  struct Dtypes {
    torch::ScalarType own;
    torch::ScalarType sent;
  };

  // Makes one of `size` zeros for each rank; collective. Returns null on all ranks if no two are on the same `machine`
  // or one of them cannot reach the memory of its own, or an engine is to send from machine to machine. The name tells
  // this one from others of the group.
  static std::shared_ptr<SharedSum> make(ProcessCommunicator& group, const std::string& machine,
                                         const std::string& name, int64_t size, Dtypes dtypes);

  // Returns this rank's tensor, which keeps the memory alive.
  torch::Tensor tensor() const;
  // Returns where a contiguous tensor begins in this rank's, in elements; -1 when it is not a part of it.
  int64_t offset_of(const torch::Tensor& tensor) const;
  const std::string& name() const { return name_; }
  // Returns whether nobody holds a tensor of it any more.
  bool unused() const { return memory_.use_count() == 1; }

  // Makes a part of every rank's tensor the sum over the ranks, added in rank order within a machine and then, as it is
  // sent, in the order of the machines' first ranks, which send it by the algorithm (levels.h). All ranks are here
  // already: what they wrote before is there.
  void sum(Transport& transport, int64_t offset, int64_t size, std::string_view algorithm) const;

 private:
  // The ranks that say to be on the same machine, in rank order, for each machine.
  using Machines = std::vector<std::vector<int>>;

  SharedSum(std::shared_ptr<SharedMemory> memory, std::string name, int64_t size, Dtypes dtypes,
            const Machines& machines, int rank);
  std::byte* part(std::size_t member, int64_t offset) const;
  void sum_slice(int64_t offset, int64_t size) const;

  std::shared_ptr<SharedMemory> memory_;
  std::string name_;
  int64_t size_;
  torch::ScalarType dtype_;
  torch::ScalarType sent_;
  std::vector<int> members_;  // the ranks of this machine
  std::vector<int> leaders_;  // the first rank of each machine
  std::size_t self_ = 0;      // this rank among the members
};

}  // namespace cohort
