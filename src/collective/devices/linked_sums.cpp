#include "collective/devices/linked_sums.h"

#include "base/fail.h"
#include "collective/algorithms/cross_device_sum.h"
#include "device/backend.h"

namespace cohort {

std::unique_ptr<SideStreams> streams_beside(const std::vector<torch::Device>& devices) {
  std::unique_ptr<SideStreams> streams = backend_of(devices.front()).make_side_streams(devices);
  if (streams == nullptr) fail<Unimplemented>("[collective] ", devices.front(), " has no streams beside its work");
  return streams;
}

int64_t total_bytes(const std::vector<torch::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const torch::Tensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

LinkedSums::LinkedSums(const std::vector<torch::Device>& of_ranks, const MakeLink& make,
                       std::chrono::milliseconds timeout)
    : places_(of_ranks),
      ranks_(places_.devices.size()),
      link_(places_.devices.size() > 1 ? make(places_.devices) : nullptr),
      streams_(streams_beside(places_.devices)),
      watch_({.name = std::string(link_ ? link_->name() : "one device"),
              .timeout = timeout,
              .ask = [this] { return link_ ? link_->error() : std::string(); },
              .abort = [this] { abort(); }}) {
  for (std::size_t d = 0; d < ranks_.size(); ++d) {
    ranks_[d] = places_.ranks(d);
    std::string names;
    for (const std::size_t rank : ranks_[d]) names += c10::str(names.empty() ? "" : " and ", rank);
    who_.push_back(c10::str("replica ", names, " (", places_.devices[d], ")"));
  }
}

LinkedSums::~LinkedSums() = default;

PointPtr LinkedSums::mark(int rank) const {
  return streams_->mark(places_.of[static_cast<std::size_t>(rank)]);
}

std::vector<PointPtr> LinkedSums::follow(const std::vector<PointPtr>& ready) {
  std::vector<PointPtr> begun;
  for (std::size_t d = 0; d < ranks_.size(); ++d) {
    for (const std::size_t rank : ranks_[d]) streams_->follow(d, ready[rank]);
    begun.push_back(streams_->record(d));
  }
  return begun;
}

SumsBeside::Ends LinkedSums::end(const std::string& what, const std::vector<PointPtr>& begun) {
  std::vector<CollectiveWatch::Part> parts;
  for (std::size_t d = 0; d < ranks_.size(); ++d) {
    parts.push_back({.who = who_[d], .begun = begun[d], .ended = streams_->record(d)});
  }
  Ends ends;
  for (const std::size_t device : places_.of) ends.push_back({parts[device].ended});
  watch_.add(what, std::move(parts));
  return ends;
}

SumsBeside::Ends LinkedSums::begin(const std::string& what, const Tensors& all, const std::vector<PointPtr>& ready) {
  const std::lock_guard lock(mutex_);
  watch_.require_well();
  const std::vector<PointPtr> begun = follow(ready);
  on_devices(all, add_up_in_first);
  if (link_) {
    Tensors of_devices;
    for (const auto& ranks : ranks_) of_devices.push_back(all[ranks.front()]);
    link_->all_reduce(*streams_, of_devices);
  }
  on_devices(all, copy_from_first);
  return end(
      c10::str("all_reduce of ", what, ", ", total_bytes(all.front()), " bytes in ", all.front().size(), " tensor(s)"),
      begun);
}

void LinkedSums::on_devices(const Tensors& all, void (*work)(const Tensors& ranks)) {
  for (std::size_t d = 0; d < ranks_.size(); ++d) {
    if (ranks_[d].size() == 1) continue;
    Tensors own;
    std::vector<torch::Tensor> used;
    for (const std::size_t rank : ranks_[d]) {
      own.push_back(all[rank]);
      used.insert(used.end(), all[rank].begin(), all[rank].end());
    }
    streams_->begin(
        d, [own, work] { work(own); }, used);
  }
}

// The link is called again by each run of graphs in which the device's kernels are the host's.
void LinkedSums::capture(std::size_t device, const Tensors& of) {
  watch_.require_well();
  add_up_in_first(of);
  if (link_) {
    begin_kernel(of.front(), [this, device, own = of.front()] { link_->join(device, own); });
  }
  copy_from_first(of);
}

void LinkedSums::watch(const std::string& what, const std::vector<Passage>& graphs) {
  std::vector<CollectiveWatch::Part> parts;
  for (std::size_t d = 0; d < ranks_.size(); ++d) {
    parts.push_back({.who = who_[d], .begun = graphs[d].begun, .ended = graphs[d].ended});
  }
  watch_.add(what, std::move(parts));
}

SumsBeside::Ends LinkedSums::all_gather(const std::string& what, const std::vector<torch::Tensor>& own,
                                        const std::vector<torch::Tensor>& whole, const std::vector<PointPtr>& ready) {
  const std::lock_guard lock(mutex_);
  watch_.require_well();
  const std::vector<PointPtr> begun = follow(ready);
  link_->all_gather(*streams_, own, whole);
  return end(c10::str("all_gather of ", what, ", ", own.front().nbytes(), " bytes of each"), begun);
}

// Nobody begins something on a link that ends, because the watch says so first. One who is stuck in it is freed by its
// end, which itself may take as long as there are graphs with the link's sums.
void LinkedSums::abort() noexcept {
  { const std::unique_lock until_left(mutex_, std::chrono::seconds(2)); }
  if (link_) link_->abort();
}

}  // namespace cohort
