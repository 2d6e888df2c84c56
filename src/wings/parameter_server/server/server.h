// ParameterServer: answers the calls to a ps task (messages.proto). It holds the shards of the homes that its views
// give this process, primary or backup, and knows nothing of workers. It obeys the coordinator of the latest epoch that
// it has heard of, and no other.
#pragma once

#include <chrono>
#include <memory>
#include <set>
#include <shared_mutex>
#include <string>
#include <vector>

#include "messages.pb.h"
#include "rpc/channel.h"
#include "rpc/frame.h"
#include "rpc/server.h"
#include "wings/parameter_server/catalog.h"
#include "wings/parameter_server/server/fence.h"
#include "wings/parameter_server/server/held_shards.h"
#include "wings/parameter_server/server/peer_servers.h"
#include "wings/parameter_server/server/serving_options.h"
#include "wings/parameter_server/server/shard.h"
#include "wings/parameter_server/server/shard_copier.h"

namespace cohort {

// Thread-safe.
class ParameterServer {
 public:
  ParameterServer(std::shared_ptr<const Catalog> catalog, ServingOptions options);
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;
  ~ParameterServer();

  // Handles a call, as RpcServer::Handler.
  void handle(const std::string& method, const std::shared_ptr<RpcCall>& call);

  // Returns whether the coordinator has said that the run is over.
  bool stopped() const;
  // Returns when the coordinator was last heard of.
  std::chrono::steady_clock::time_point last_hello() const;

 private:
  using Call = std::shared_ptr<RpcCall>;
  using ShardPtr = std::shared_ptr<Shard>;

  // Calls of the coordinator.
  void hello(const Call& call);
  void set_view(const Call& call);
  void create(const Call& call);
  void install(const Call& call);
  void copy(const Call& call);
  void state(const Call& call);
  void forget(const Call& call);
  void stop(const Call& call);
  // Calls of workers, and what a primary passes on to a backup.
  void pull(const Call& call);
  void push(const Call& call);
  void replicate(const Call& call);

  struct Applied {
    parameter_server::PushReply reply;
    std::vector<torch::Tensor> values;
    std::set<int> backups;
  };
  Applied apply(const Frame& frame, bool as_backup);
  bool apply_item(Shard& shard, const parameter_server::PushRequest::Item& item, FrameReader& reader);
  void pass_on(const Call& call, Applied applied);

  std::string name() const;
  // Throws FailedPrecondition if a later coordinator is in charge, and Unavailable if the order is for another process.
  void obey(const parameter_server::Order& order);
  // Returns the home of a shard, and throws unless this process is its primary. The caller holds view_mutex_.
  const parameter_server::View::Home& require_primary(uint32_t shard) const;
  // Throws InvalidArgument if a message has many more items than there are shards.
  void require_few(int items) const;

  const std::shared_ptr<const Catalog> catalog_;
  const ServingOptions options_;
  // Updates hold it, shared, from the look at the view until they are applied, so that none of them is under way when a
  // new view is set. It is taken before mutex_.
  mutable std::shared_mutex view_mutex_;
  mutable std::shared_mutex mutex_;
  // view_mutex_ guards it; mutex_ guards what require_fill() notes in it, and the next two.
  ServerFence fence_;
  bool stopped_ = false;
  std::chrono::steady_clock::time_point last_hello_ = std::chrono::steady_clock::now();
  HeldShards shards_;
  PeerServers peers_;
  ShardCopier copier_;  // the last member, because its thread uses the others
};

}  // namespace cohort
