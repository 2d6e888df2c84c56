// HeldShards: the shards that a parameter server's process has, and those that are being given to it in parts.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "messages.pb.h"
#include "wings/parameter_server/catalog.h"
#include "wings/parameter_server/server/shard.h"

namespace cohort {

// Errors speak in the name of the server. InvalidArgument: there is no such shard. Thread-safe.
class HeldShards {
 public:
  using ShardPtr = std::shared_ptr<Shard>;
  using Rates = google::protobuf::RepeatedPtrField<parameter_server::View::Rate>;

  HeldShards(std::shared_ptr<const Catalog> catalog, std::string name)
      : catalog_(std::move(catalog)), name_(std::move(name)), shards_(catalog_->shards().size()) {}

  // Returns the number of shards that there are, here or elsewhere.
  std::size_t size() const { return shards_.size(); }
  const ShardInfo& info(uint32_t shard) const;
  ShardPtr find(uint32_t shard) const;  // null if it is not here
  ShardPtr held(uint32_t shard) const;  // throws Unavailable if it is not here

  void put(uint32_t number, ShardPtr shard);
  // Takes over a part of a shard's state. Its rows arrive in order, each once, and its progress last, so that a shard
  // which is held is whole. It gets the learning rate that was set for it. FailedPrecondition: the part belongs to no
  // attempt that is under way. InvalidArgument: it is not the part that comes next.
  void take_part(const parameter_server::InstallRequest& request, const std::vector<torch::Tensor>& tensors,
                 const Rates& rates);

  // Throws FailedPrecondition unless the shards of these homes are here.
  void require(const std::function<bool(int home)>& wanted) const;
  // Keeps the shards of these homes, and what has arrived for them.
  void keep(const std::function<bool(int home)>& stays);
  void set_learning_rates(const Rates& rates);

 private:
  // A shard whose state arrives in parts.
  struct Arriving {
    ShardPtr shard;
    uint64_t serial = 0;  // the attempt to which the parts belong
    int64_t rows = 0;     // number of rows that have arrived, from the first on
  };
  Arriving arriving(const parameter_server::InstallRequest& request);
  void arrived(const parameter_server::InstallRequest& request, const Arriving& part, int64_t rows, const Rates& rates);
  ShardPtr make_shard(uint32_t number) const;

  const std::shared_ptr<const Catalog> catalog_;
  const std::string name_;
  mutable std::shared_mutex mutex_;
  std::vector<ShardPtr> shards_;  // the shards by number; null: not here
  std::map<uint32_t, Arriving> arriving_;
};

}  // namespace cohort
