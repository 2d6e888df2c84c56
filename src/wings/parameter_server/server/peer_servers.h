// PeerServers: a parameter server's end towards the other ones. It passes updates on to them, and gives them shards.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "rpc/channel.h"
#include "rpc/frame.h"
#include "wings/parameter_server/server/serving_options.h"
#include "wings/parameter_server/server/shard.h"
#include "wings/parameter_server/server/shard_copier.h"

namespace cohort {

// InvalidArgument: a number is that of no other server. Thread-safe.
class PeerServers {
 public:
  PeerServers(const ServingOptions& options, std::string name) : options_(options), name_(std::move(name)) {}
  PeerServers(const PeerServers&) = delete;
  PeerServers& operator=(const PeerServers&) = delete;

  // Passes updates on to these servers, of which there has to be one. `done` is called once when all of them have
  // answered, with an error of one of them or with nothing.
  using Done = std::function<void(const std::exception_ptr& error)>;
  void replicate(const std::set<int>& servers, const Frame& updates, const Done& done);
  // Gives another server a shard, in parts. Updates of it wait meanwhile.
  void send_shard(uint32_t number, const Shard& shard, const ShardCopier::Job& job, const ShardCopier::Sent& sent);
  // Ends what is under way.
  void close();

 private:
  RpcClient& peer(int index);

  const ServingOptions options_;
  const std::string name_;
  std::mutex mutex_;
  std::map<int, std::unique_ptr<RpcClient>> peers_;
};

}  // namespace cohort
