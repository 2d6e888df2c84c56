#include "wings/parameter_server/server/held_shards.h"

#include <ATen/Functions.h>

#include <mutex>

#include "base/fail.h"

namespace cohort {

namespace {

namespace proto = parameter_server;

}  // namespace

const ShardInfo& HeldShards::info(uint32_t shard) const {
  if (shard < shards_.size()) return catalog_->shards()[shard];
  fail<InvalidArgument>("[parameter server] ", name_, ": shard ", shard, " was asked for, there are ", shards_.size());
}

HeldShards::ShardPtr HeldShards::find(uint32_t shard) const {
  (void)info(shard);
  const std::shared_lock lock(mutex_);
  return shards_[shard];
}

HeldShards::ShardPtr HeldShards::held(uint32_t shard) const {
  if (ShardPtr found = find(shard)) return found;
  fail<Unavailable>("[parameter server] ", name_, " does not have ", info(shard).spec.name, " (shard ", shard, ")");
}

void HeldShards::put(uint32_t number, ShardPtr shard) {
  const std::unique_lock lock(mutex_);
  shards_[number] = std::move(shard);
}

HeldShards::ShardPtr HeldShards::make_shard(uint32_t number) const {
  const ShardInfo& place = info(number);
  return std::make_shared<Shard>(place.spec, at::empty(place.spec.shape, place.spec.dtype),
                                 catalog_->optimizer_of(number));
}

void HeldShards::take_part(const proto::InstallRequest& request, const std::vector<torch::Tensor>& tensors,
                           const Rates& rates) {
  const Arriving part = arriving(request);
  const bool last = request.part() == proto::InstallRequest::PROGRESS;
  last ? part.shard->load_progress(tensors) : part.shard->load_rows(request.first_row(), tensors);
  arrived(request, part, last ? 0 : tensors.front().size(0), rates);
}

// Returns the shard that a message adds to.
HeldShards::Arriving HeldShards::arriving(const proto::InstallRequest& request) {
  (void)info(request.shard());
  const bool first = request.part() == proto::InstallRequest::FIRST;
  const ShardPtr made = first ? make_shard(request.shard()) : nullptr;
  const std::unique_lock lock(mutex_);
  if (first) arriving_[request.shard()] = {.shard = made, .serial = request.order().serial()};
  const auto found = arriving_.find(request.shard());
  if (found == arriving_.end() || found->second.serial != request.order().serial()) {
    fail<FailedPrecondition>("[parameter server] ", name_, ": a part of shard ", request.shard(),
                             " came before its first one");
  }
  const bool last = request.part() == proto::InstallRequest::PROGRESS;
  const int64_t wanted = last ? found->second.shard->num_rows() : request.first_row();
  if (found->second.rows == wanted) return found->second;
  fail<InvalidArgument>("[parameter server] ", name_, ": shard ", request.shard(), " has ", found->second.rows, " of ",
                        found->second.shard->num_rows(), " rows, but ",
                        last ? std::string("its progress") : c10::str("row ", wanted), " came next");
}

// Notes that a part of a shard was taken over.
void HeldShards::arrived(const proto::InstallRequest& request, const Arriving& part, int64_t rows, const Rates& rates) {
  const std::unique_lock lock(mutex_);
  const auto found = arriving_.find(request.shard());
  if (found == arriving_.end() || found->second.shard != part.shard || found->second.rows != part.rows) {
    fail<FailedPrecondition>("[parameter server] ", name_, ": shard ", request.shard(),
                             " came from two senders at a time");
  }
  found->second.rows += rows;
  if (request.part() != proto::InstallRequest::PROGRESS) return;
  arriving_.erase(found);
  const ServerVariable& variable = catalog_->variables()[info(request.shard()).variable];
  for (const proto::View::Rate& rate : rates) {
    if (&catalog_->variables()[rate.variable()] == &variable) part.shard->set_learning_rate(rate.learning_rate());
  }
  shards_[request.shard()] = part.shard;
}

void HeldShards::require(const std::function<bool(int home)>& wanted) const {
  const std::shared_lock lock(mutex_);
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    const ShardInfo& place = catalog_->shards()[shard];
    if (shards_[shard] || !wanted(place.home)) continue;
    fail<FailedPrecondition>("[parameter server] ", name_, " is to serve ", place.spec.name, ", but does not have it");
  }
}

void HeldShards::keep(const std::function<bool(int home)>& stays) {
  const std::unique_lock lock(mutex_);
  for (uint32_t shard = 0; shard < shards_.size(); ++shard) {
    if (stays(catalog_->shards()[shard].home)) continue;
    shards_[shard].reset();
    arriving_.erase(shard);
  }
}

void HeldShards::set_learning_rates(const Rates& rates) {
  const std::shared_lock lock(mutex_);
  for (const proto::View::Rate& rate : rates) {
    const auto [first, last] = catalog_->shards_of(rate.variable());
    for (std::size_t shard = first; shard < last; ++shard) {
      if (shards_[shard]) shards_[shard]->set_learning_rate(rate.learning_rate());
    }
  }
}

}  // namespace cohort
