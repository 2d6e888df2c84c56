// Two ways between the processes, and what both have in common.
#include "collective/devices/sums_over_processes.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/deadline.h"
#include "base/error_text.h"
#include "base/fail.h"
#include "cohort/trace.h"
#include "collective/devices/stream_sums.h"
#include "collective/devices/watch.h"
#include "collective/work_queues.h"
#include "device/backend.h"

namespace cohort {

namespace {

constexpr const char* kDestroyed = "the optimizer was destroyed within a step";

class OverProcesses : public SumsBeside {
 public:
  OverProcesses(const std::vector<torch::Device>& of_ranks, std::shared_ptr<SumsBeside> local,
                std::unique_ptr<ProcessCommunicator> group, std::chrono::milliseconds timeout)
      : places_(of_ranks), local_(std::move(local)), timeout_(timeout), group_(std::move(group)) {}
  OverProcesses(const OverProcesses&) = delete;
  OverProcesses& operator=(const OverProcesses&) = delete;

  void require_well() const override {
    if (local_) local_->require_well();
    const std::lock_guard lock(error_mutex_);
    if (error_) std::rethrow_exception(error_);
  }

  // The graphs of several processes have nobody who sees to it that all are launched.
  bool fits_graphs() const override { return false; }
  void capture(std::size_t /*device*/, const Tensors& /*of*/) override {
    fail<Internal>("[collective] sums over processes cannot be a part of graphs");
  }

  void take_first(std::vector<int64_t>& numbers) override {
    torch::Tensor all = torch::tensor(numbers, torch::kLong);
    group_->broadcast({&all, 1}, 0);
    const auto values = all.accessor<int64_t, 1>();
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = values[static_cast<int64_t>(i)];
  }

  void require_same(const std::string& text) override { (void)group_->gather_numbers(text, {}); }

 protected:
  // Begins the sums within the process and returns their ends, of each rank.
  Ends begin_here(const std::string& what, const Tensors& all, const std::vector<PointPtr>& ready) {
    return local_ ? local_->begin(what, all, ready) : Ends{{ready.front()}};
  }
  // Makes a device's stream wait for the ends of its ranks.
  void follow(SideStreams& streams, std::size_t device, const Ends& ends) const {
    for (std::size_t r = 0; r < ends.size(); ++r) {
      if (places_.of[r] != device) continue;
      for (const PointPtr& end : ends[r]) streams.follow(device, end);
    }
  }
  void note_error(std::exception_ptr error) {
    const std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::move(error);
  }
  std::string own_name() const { return group_->rank_name(group_->rank()); }

  DevicePlaces places_;
  std::shared_ptr<SumsBeside> local_;  // null: there is one rank
  std::chrono::milliseconds timeout_;
  std::unique_ptr<ProcessCommunicator> group_;

 private:
  mutable std::mutex error_mutex_;
  std::exception_ptr error_;
};

// ---- Over the host's memory.

using Points = std::vector<PointPtr>;  // [device]

// The point at which a sum is back on a device. Every operation before it has a deadline, and so has the wait for it.
class CameBack final : public DevicePoint {
 public:
  CameBack(std::shared_future<Points> points, std::size_t device) : points_(std::move(points)), device_(device) {}

  void wait(torch::Device device) const override { there().wait(device); }
  bool reached() const override {
    return points_.wait_for(std::chrono::seconds(0)) == std::future_status::ready && there().reached();
  }

 private:
  const DevicePoint& there() const {
    const TraceSpan span("communication", "wait for an operation");
    return *points_.get()[device_];
  }

  std::shared_future<Points> points_;
  std::size_t device_;
};

class OverTheHost final : public OverProcesses {
 public:
  OverTheHost(const std::vector<torch::Device>& of_ranks, std::shared_ptr<SumsBeside> local,
              std::unique_ptr<ProcessCommunicator> group, std::chrono::milliseconds timeout)
      : OverProcesses(of_ranks, std::move(local), std::move(group), timeout),
        out_(streams_beside(places_.devices)),
        back_(streams_beside(places_.devices)) {}
  OverTheHost(const OverTheHost&) = delete;
  OverTheHost& operator=(const OverTheHost&) = delete;
  // The others may never come to what was begun. The group's thread, which uses this object and the group, ends first.
  ~OverTheHost() override {
    if (under_way_ > 0) {
      ended_ = true;
      group_->abort(kDestroyed);
    }
    group_->queues().collectives().settle();
  }

  PointPtr mark(int rank) const override { return out_->mark(places_.of[static_cast<std::size_t>(rank)]); }

  Ends begin(const std::string& what, const Tensors& all, const std::vector<PointPtr>& ready) override {
    const std::lock_guard lock(mutex_);
    require_well();
    const auto sum = std::make_shared<Sum>();
    sum->what = what;
    sum->all = all;
    sum->here = begin_here(what, all, ready);
    fetch(*sum);
    const std::shared_future<Points> points = sum->points.get_future().share();
    ++under_way_;
    group_->queues().collectives().push([this, sum] {
      bring_over(*sum);
      --under_way_;
    });
    Ends ends;
    for (const std::size_t device : places_.of) ends.push_back({std::make_shared<CameBack>(points, device)});
    return ends;
  }

 private:
  struct Sum {
    std::string what;
    Tensors all;
    Ends here;                        // of the sums within the process
    std::vector<torch::Tensor> host;  // those of the first rank
    PointPtr fetched;
    std::promise<Points> points;
  };

  // A stream for the way out and another one for the way back, so that a sum does not wait for those behind it.
  void fetch(Sum& sum) {
    const std::vector<torch::Tensor>& own = sum.all.front();
    for (const torch::Tensor& tensor : own) {
      sum.host.push_back(
          backend_of(tensor.device()).host_memory(tensor.numel(), tensor.scalar_type()).view(tensor.sizes()));
    }
    for (const PointPtr& end : sum.here.front()) out_->follow(0, end);
    const auto copy = [from = own, to = sum.host] {
      for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i], /*non_blocking=*/true);
    };
    out_->begin(0, copy, own);
    sum.fetched = out_->record(0);
  }

  // In the thread of the group's collectives. After one that failed nothing follows.
  void bring_over(Sum& sum) noexcept {
    try {
      require_well();
      await(sum);
      require_well();  // what failed within the process goes no further
      group_->all_reduce(sum.host, ReduceOp::kSum);
      sum.points.set_value(take_back(sum));
    } catch (...) {
      note_error(std::current_exception());
      sum.points.set_exception(std::current_exception());
    }
  }

  // Asks and sleeps, an eighth of the time that it has waited: the thread may share the core with those that feed the
  // devices.
  void await(const Sum& sum) const {
    using std::chrono::microseconds;
    const Deadline deadline(timeout_);
    const auto begin = Deadline::Clock::now();
    while (!sum.fetched->reached()) {
      if (ended_) fail<Cancelled>("[collective] ", own_name(), " in ", sum.what, ": cancelled, because ", kDestroyed);
      if (deadline.passed()) {
        fail<DeadlineExceeded>("[collective] ", own_name(), " waited ", to_text(timeout_), " for ",
                               places_.devices.front(), " to bring ", sum.what, " for the other workers");
      }
      const auto waited = std::chrono::duration_cast<microseconds>(Deadline::Clock::now() - begin);
      std::this_thread::sleep_for(std::clamp(waited / 8, microseconds(5), microseconds(1000)));
    }
  }

  Points take_back(const Sum& sum) {
    Points points;
    for (std::size_t d = 0; d < places_.devices.size(); ++d) {
      follow(*back_, d, sum.here);
      std::vector<torch::Tensor> used;
      for (std::size_t r = 0; r < sum.all.size(); ++r) {
        if (places_.of[r] == d) used.insert(used.end(), sum.all[r].begin(), sum.all[r].end());
      }
      const auto copy = [to = used, from = sum.host] {
        for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i % from.size()], /*non_blocking=*/true);
      };
      back_->begin(d, copy, used);
      points.push_back(back_->record(d));
    }
    return points;
  }

  std::mutex mutex_;  // of those who begin something, and of out_
  std::unique_ptr<SideStreams> out_;
  std::unique_ptr<SideStreams> back_;  // of the group's thread
  std::atomic<int> under_way_ = 0;     // sums that the group's thread has not ended
  std::atomic<bool> ended_ = false;
};

// ---- On the devices.

class OnDevices final : public OverProcesses {
 public:
  // The first sum makes the connections of what carries it, for which the host waits here.
  OnDevices(const std::vector<torch::Device>& of_ranks, std::shared_ptr<SumsBeside> local,
            std::unique_ptr<ProcessCommunicator> group, std::chrono::milliseconds timeout, StreamSums& sums)
      : OverProcesses(of_ranks, std::move(local), std::move(group), timeout), sums_(sums) {
    torch::Tensor nothing = at::zeros({1}, at::TensorOptions().device(places_.devices.front()));
    group_->all_reduce({&nothing, 1}, ReduceOp::kSum);
    streams_ = streams_beside(places_.devices);
    watch_.emplace(CollectiveWatch::Options{.name = std::string(group_->name()),
                                            .timeout = timeout_,
                                            .ask = [this] { return what_is_wrong(); },
                                            .abort = [this] { sums_.end_sums("a sum has failed"); },
                                            .recorder = &group_->recorder(),
                                            .others = [this](uint64_t number) { return who_is_missing(number); }});
  }
  OnDevices(const OnDevices&) = delete;
  OnDevices& operator=(const OnDevices&) = delete;
  ~OnDevices() override {
    if (last_ && !has_ended(*last_)) sums_.end_sums(kDestroyed);
  }

  PointPtr mark(int rank) const override { return streams_->mark(places_.of[static_cast<std::size_t>(rank)]); }
  void require_well() const override {
    OverProcesses::require_well();
    watch_->require_well();
  }

  Ends begin(const std::string& what, const Tensors& all, const std::vector<PointPtr>& ready) override {
    const std::lock_guard lock(mutex_);
    require_well();
    const Ends here = begin_here(what, all, ready);
    const std::vector<torch::Tensor>& own = all.front();
    for (const PointPtr& end : here.front()) streams_->follow(0, end);
    const PointPtr begun = streams_->record(0);
    begin_between(what, own);
    last_ = streams_->record(0);
    watch_->add(c10::str("all_reduce of ", what, " over the workers, ", total_bytes(own), " bytes"),
                {{.who = c10::str(own_name(), " (", places_.devices.front(), ")"), .begun = begun, .ended = last_}});
    return give_to_others(all, here);
  }

 private:
  static bool has_ended(const DevicePoint& point) noexcept {
    try {
      return point.reached();
    } catch (const std::exception&) {
      return false;
    }
  }

  // The end of another worker ends what carries the sums, maybe before it is known here whose end it was.
  std::string what_is_wrong() const {
    if (const auto failure = group_->failure()) return *failure;
    const std::string error = sums_.error();
    return error.empty() ? error : group_->reason_of(error);
  }
  std::string who_is_missing(uint64_t number) const {
    const std::string missing = group_->missing(number);
    return missing.empty() ? "" : "; of the workers it waits for " + missing;
  }

  // What carries the sums says of a group that has failed only that it has ended.
  void begin_between(const std::string& what, const std::vector<torch::Tensor>& own) {
    const auto add_up = [this, own] {
      for (const torch::Tensor& tensor : own) {
        if (tensor.numel() > 0) sums_.begin_all_reduce(tensor);
      }
    };
    try {
      streams_->begin(0, add_up, own);
    } catch (const std::exception& error) {
      fail<Unavailable>("[collective] ", own_name(), " in all_reduce of ", what, ": ",
                        group_->reason_of(error_text(error)));
    }
  }

  // Gives the other ranks what the first one has.
  Ends give_to_others(const Tensors& all, const Ends& here) {
    const std::vector<torch::Tensor>& sums = all.front();
    Points points;
    for (std::size_t d = 0; d < places_.devices.size(); ++d) {
      if (d > 0) streams_->follow(d, last_);
      follow(*streams_, d, here);
      for (std::size_t r = 1; r < all.size(); ++r) {
        if (places_.of[r] != d) continue;
        std::vector<torch::Tensor> used = all[r];
        used.insert(used.end(), sums.begin(), sums.end());
        const auto copy = [to = all[r], from = sums] {
          for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i], /*non_blocking=*/true);
        };
        streams_->begin(d, copy, used);
      }
      points.push_back(streams_->record(d));
    }
    Ends ends;
    for (const std::size_t device : places_.of) ends.push_back({points[device]});
    return ends;
  }

  StreamSums& sums_;
  std::mutex mutex_;  // of those who begin something
  std::unique_ptr<SideStreams> streams_;
  PointPtr last_;                         // the end of the last sum
  std::optional<CollectiveWatch> watch_;  // the last member: it uses the others
};

}  // namespace

std::shared_ptr<SumsBeside> make_sums_over_processes(const std::vector<torch::Device>& of_ranks,
                                                     std::shared_ptr<SumsBeside> local,
                                                     std::unique_ptr<ProcessCommunicator> group,
                                                     std::chrono::milliseconds timeout) {
  if (StreamSums* const sums = group->stream_sums(of_ranks.front())) {
    return std::make_shared<OnDevices>(of_ranks, std::move(local), std::move(group), timeout, *sums);
  }
  return std::make_shared<OverTheHost>(of_ranks, std::move(local), std::move(group), timeout);
}

}  // namespace cohort
