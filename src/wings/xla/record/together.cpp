// Several devices as replicas of one program. Their work is recorded for each by itself; where it comes to the same
// program it is launched once for all of them, with the sums inside. Where it does not (a short last batch), a program
// of several replicas cannot exist, so the sums are made on the host between two programs of each device.
#include <algorithm>

#include "base/fail.h"
#include "base/log.h"
#include "wings/xla/record/cell.h"
#include "wings/xla/record/recorder.h"

namespace cohort::record {

// The recordings of some devices, all held while it lives.
class Together {
 public:
  explicit Together(std::span<const torch::Device> devices) {
    for (const torch::Device device : devices) recordings_.push_back(&recording_of(device));
    // Locks are taken in one order, whatever the replicas' is.
    std::vector<Recording*> ordered = recordings_;
    std::sort(ordered.begin(), ordered.end(), [](auto* a, auto* b) { return a->device() < b->device(); });
    for (Recording* each : ordered) locks_.emplace_back(each->mutex_);
  }

  void flush() {
    std::vector<Recording::Work> works;
    for (Recording* each : recordings_) works.push_back(each->prepare());
    const std::shared_ptr<Hosts> hosts = hosts_of_devices();
    if (!is_one_program(works, hosts.get())) {
      sum_on_host(hosts.get());
      for (Recording* each : recordings_) each->flush();
    } else if (!works.front().pending.empty()) {
      launch(works);
    }
    forget_sums();
  }

  void forget_sums() {
    for (Recording* each : recordings_) each->sums_.clear();
  }

 private:
  std::shared_ptr<Hosts> hosts_of_devices() const {
    std::vector<int> devices;
    for (const Recording* each : recordings_) devices.push_back(each->device());
    const std::shared_ptr<GraphRunner> runs = runner();
    return runs == nullptr ? nullptr : runs->hosts(devices);
  }

  // Returns whether all replicas, those of other hosts too, have recorded the same. Where a host has recorded nothing
  // the others find that out when it comes to its next launch.
  bool is_one_program(const std::vector<Recording::Work>& works, Hosts* hosts) const {
    const std::shared_ptr<const Program>& program = works.front().captured.program;
    const bool same =
        std::all_of(works.begin(), works.end(), [&](const auto& work) { return work.captured.program == program; });
    if (hosts == nullptr || (same && program == nullptr)) return same;
    require_same_sums();
    std::vector<TensorType> sums;
    for (const auto& sum : recordings_.front()->sums_) sums.push_back(sum->outputs.at(0));
    return agree_on_program(*hosts, same ? program.get() : nullptr, sums);
  }

  void launch(const std::vector<Recording::Work>& works) {
    const std::shared_ptr<GraphRunner> runs = runner();
    std::vector<std::vector<std::shared_ptr<DeviceData>>> inputs;
    std::vector<int> devices;
    for (std::size_t r = 0; r < works.size(); ++r) {
      inputs.push_back(recordings_[r]->inputs_of(*runs, works[r].captured));
      devices.push_back(recordings_[r]->device());
    }
    const auto results = runs->run_replicas(works.front().captured.program, inputs, devices);
    for (std::size_t r = 0; r < works.size(); ++r) recordings_[r]->finish(works[r], results.at(r));
  }

  // Every replica has recorded the same sums in the same order.
  void require_same_sums() const {
    const auto& first = recordings_.front()->sums_;
    for (const Recording* each : recordings_) {
      bool same = each->sums_.size() == first.size();
      for (std::size_t i = 0; same && i < first.size(); ++i) same = each->sums_[i]->outputs == first[i]->outputs;
      if (same) continue;
      fail<FailedPrecondition>("[record] xla:", each->device(), " waits for ", each->sums_.size(),
                               " sums over replicas, xla:", recordings_.front()->device(), " for ", first.size(),
                               " or for others: every replica has to record the same ones in the same order");
    }
  }

  // Gives the sums their values: what they are sums of is computed on each device, fetched, and added in order, and
  // then over the hosts.
  void sum_on_host(Hosts* hosts) {
    require_same_sums();
    const std::size_t count = recordings_.front()->sums_.size();
    if (count == 0) return;
    warn_once(
        "[record] the replicas have recorded different programs, as they do when their shares have different sizes; "
        "such steps sum gradients on the host, which is slower");
    std::vector<torch::Tensor> totals(count);
    for (Recording* each : recordings_) {
      const std::vector<torch::Tensor> own = summands(*each);
      for (std::size_t i = 0; i < count; ++i) totals[i] = totals[i].defined() ? totals[i].add_(own[i]) : own[i].clone();
    }
    if (hosts != nullptr) hosts->sum(totals);
    for (Recording* each : recordings_) {
      for (std::size_t i = 0; i < count; ++i) {
        Node& node = *each->sums_[i];
        node.data = {runner()->place(totals[i], each->device())};
        node.op = kDataOp;
        node.arguments.clear();
      }
    }
  }

  // Returns the values of what a device's sums are made of. Nothing of it is kept on the device, and no memory given
  // away: the pending work goes on from where it was.
  static std::vector<torch::Tensor> summands(Recording& recording) {
    std::vector<Value> values;
    for (const auto& sum : recording.sums_) values.push_back(std::get<Value>(sum->arguments.at(0)));
    const Captured captured = capture(values, {}, recording.cache_);
    const std::shared_ptr<GraphRunner> runs = runner();
    const auto results = runs->run(captured.program, recording.inputs_of(*runs, captured), recording.device());
    std::vector<torch::Tensor> fetched;
    for (std::size_t i = 0; i < values.size(); ++i) fetched.push_back(runs->fetch(*results.at(i), values[i].type()));
    return fetched;
  }

  std::vector<Recording*> recordings_;
  std::vector<std::unique_lock<std::recursive_mutex>> locks_;
};

void flush_together(std::span<const torch::Device> devices) {
  Together together(devices);
  try {
    together.flush();
  } catch (...) {
    together.forget_sums();  // nobody waits for them any more
    throw;
  }
}

}  // namespace cohort::record
