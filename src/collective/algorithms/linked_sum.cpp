// Rank 0 begins what all have brought; the others only say behind what, and are told what to wait for.
#include "collective/algorithms/linked_sum.h"

#include <ATen/Functions.h>

#include <memory>
#include <mutex>

namespace cohort {

namespace {

class LinkedSum {
 public:
  LinkedSum(MakeLink make, std::chrono::milliseconds timeout) : make_(std::move(make)), timeout_(timeout) {}

  // Returns the sums of ranks on these devices; the first call makes the link.
  std::shared_ptr<LinkedSums> sums(const std::vector<torch::Device>& devices) {
    const std::lock_guard lock(mutex_);
    if (!sums_) sums_ = std::make_shared<LinkedSums>(devices, make_, timeout_);
    return sums_;
  }

  void all_reduce(Rendezvous& meeting, int rank, RankTensors all, ReduceOp op) {
    if (all[0].empty()) return;
    const auto begin = [&](LinkedSums& sums) {
      SumsBeside::Tensors tensors;
      for (const auto& own : all) tensors.emplace_back(own.begin(), own.end());
      return sums.begin("values", tensors, ready_);
    };
    together(meeting, rank, all, begin);
    if (op != ReduceOp::kMean) return;
    for (torch::Tensor& sum : all[static_cast<std::size_t>(rank)]) divide(sum, static_cast<int64_t>(all.size()));
  }

  // Returns nothing where ranks share a device.
  std::vector<torch::Tensor> all_gather(Rendezvous& meeting, int rank, RankTensors all) {
    const std::shared_ptr<LinkedSums> sums = this->sums(devices_of(all));
    if (!sums->gathers()) return {};
    const auto me = static_cast<std::size_t>(rank);
    const torch::Tensor& mine = all[me].front();
    const torch::Tensor whole = at::empty({static_cast<int64_t>(all.size()), mine.numel()}, mine.options());
    {
      const std::lock_guard lock(mutex_);
      whole_.resize(all.size());
      whole_[me] = whole;
    }
    const auto begin = [&](LinkedSums& linked) {
      std::vector<torch::Tensor> own;
      for (const auto& of_rank : all) own.push_back(of_rank.front());
      return linked.all_gather("values", own, whole_, ready_);
    };
    together(meeting, rank, all, begin);
    whole_[me] = torch::Tensor();
    std::vector<torch::Tensor> parts;
    for (const torch::Tensor& row : whole.unbind(0)) parts.push_back(row.view(mine.sizes()));
    return parts;
  }

 private:
  static std::vector<torch::Device> devices_of(RankTensors all) {
    std::vector<torch::Device> devices;
    for (const auto& own : all) devices.push_back(own.front().device());
    return devices;
  }

  // Has rank 0 begin what all have come for, and makes every rank's device wait for it.
  template <typename Begin>
  void together(Rendezvous& meeting, int rank, RankTensors all, const Begin& begin) {
    const auto me = static_cast<std::size_t>(rank);
    const std::shared_ptr<LinkedSums> sums = this->sums(devices_of(all));
    {
      const std::lock_guard lock(mutex_);
      ready_.resize(all.size());
      ready_[me] = sums->mark(rank);
    }
    meeting.sync(rank);
    if (rank == 0) ends_ = begin(*sums);
    meeting.sync(rank);
    for (const PointPtr& end : ends_[me]) end->wait(all[me].front().device());
  }

  MakeLink make_;
  std::chrono::milliseconds timeout_;
  std::mutex mutex_;  // guards sums_ and the sizes of the lists
  std::shared_ptr<LinkedSums> sums_;
  // The operation in progress, [rank].
  std::vector<PointPtr> ready_;
  std::vector<torch::Tensor> whole_;
  SumsBeside::Ends ends_;
};

}  // namespace

// What joins devices adds in an order of its own, of which reduce_into() knows nothing: the last bits may differ.
CrossDeviceSum make_linked_sum(std::string_view name, MakeLink make, std::chrono::milliseconds timeout) {
  const auto sum = std::make_shared<LinkedSum>(make, timeout);
  return {.name = name,
          .all_reduce = [sum](Rendezvous& meeting, int rank, RankTensors all,
                              ReduceOp op) { sum->all_reduce(meeting, rank, all, op); },
          .reduce = reduce_into,
          .all_gather = [sum](Rendezvous& meeting, int rank,
                              RankTensors all) { return sum->all_gather(meeting, rank, all); },
          .beside = [sum](const std::vector<torch::Device>& devices) -> std::shared_ptr<SumsBeside> {
            return sum->sums(devices);
          },
          .of_new_group = [name, make, timeout] { return make_linked_sum(name, make, timeout); }};
}

}  // namespace cohort
