#include "wings/parameter_server/server/peer_servers.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/fail.h"
#include "cohort/cluster/cluster_spec.h"
#include "messages.pb.h"

namespace cohort {

namespace {

namespace proto = parameter_server;

// The bytes of a shard's state that go in one message.
constexpr int64_t kStateBytes = int64_t{4} << 20;

}  // namespace

RpcClient& PeerServers::peer(int index) {
  if (index < 0 || index >= static_cast<int>(options_.addresses.size()) || index == options_.index) {
    fail<InvalidArgument>("[parameter server] ", name_, ": ps ", index, " is no other server");
  }
  const std::lock_guard lock(mutex_);
  std::unique_ptr<RpcClient>& client = peers_[index];
  if (client) return *client;
  client = std::make_unique<RpcClient>(TaskId{"ps", index}.to_string(),
                                       options_.addresses[static_cast<std::size_t>(index)], options_.security);
  return *client;
}

void PeerServers::replicate(const std::set<int>& servers, const Frame& updates, const Done& done) {
  struct Passing {
    Done done;
    std::atomic<int> left;
    std::mutex mutex;
    std::exception_ptr error;
  };
  const auto passing = std::make_shared<Passing>();
  passing->done = done;
  passing->left = static_cast<int>(servers.size());
  for (const int server : servers) {
    peer(server).call("/ps/Replicate", updates, options_.timeout,
                      [passing](const Frame& /*reply*/, const std::exception_ptr& error) {
                        if (error) {
                          const std::lock_guard lock(passing->mutex);
                          passing->error = error;
                        }
                        if (--passing->left == 0) passing->done(passing->error);
                      });
  }
}

void PeerServers::send_shard(uint32_t number, const Shard& shard, const ShardCopier::Job& job,
                             const ShardCopier::Sent& sent) {
  RpcClient& to = peer(job.destination);
  // Updates wait for the snapshot, so that the other server gets all earlier ones with it and all later ones by
  // messages.
  const Shard::Snapshot snapshot = shard.snapshot();
  const auto send = [&](proto::InstallRequest::Part part, int64_t first_row,
                        const std::vector<torch::Tensor>& tensors) {
    proto::InstallRequest request;
    request.set_shard(number);
    request.set_part(part);
    request.set_first_row(first_row);
    request.mutable_order()->set_epoch(job.epoch);
    request.mutable_order()->set_process(job.process);
    request.mutable_order()->set_serial(job.serial);
    request.set_term(job.term);
    const Frame frame = make_frame(request, tensors);
    (void)to.call("/ps/Install", frame, options_.timeout).get();
    int64_t bytes = 1;  // so that a shard without rows counts, too
    for (const torch::Tensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
    sent(bytes);
  };
  const int64_t rows = std::max<int64_t>(1, kStateBytes / std::max<int64_t>(1, shard.row_bytes()));
  int64_t first = 0;
  do {
    const int64_t count = std::min(rows, shard.num_rows() - first);
    send(first == 0 ? proto::InstallRequest::FIRST : proto::InstallRequest::ROWS, first, snapshot.rows(first, count));
    first += count;
  } while (first < shard.num_rows());
  send(proto::InstallRequest::PROGRESS, 0, snapshot.progress());
}

void PeerServers::close() {
  const std::lock_guard lock(mutex_);
  for (const auto& [index, client] : peers_) client->close();
}

}  // namespace cohort
