#include "wings/function/step/buckets_in_graphs.h"

#include <utility>

#include "collective/gradient_wire.h"
#include "wings/function/step/graph_set.h"

namespace cohort {

namespace {

std::vector<torch::Device> devices_of(const StrategyCore& core) {
  std::vector<torch::Device> devices;
  for (int id = 0; id < core.num_local_replicas(); ++id) devices.push_back(core.replica(id).device());
  return devices;
}

}  // namespace

struct BucketsInGraphs::Joining {
  SumsBeside::Tensors sent;  // [bucket]
  std::function<void()> update;
  std::shared_ptr<GraphSet> set;  // that of replica 0
};

BucketsInGraphs::BucketsInGraphs(StrategyCore& core, DeviceBuckets& buckets, std::shared_ptr<GraphAgreement> agreement)
    : core_(core), buckets_(buckets), agreement_(std::move(agreement)), places_(devices_of(core)) {}

// The thread of the last replica on a device captures what is done with the gradients of all of them.
void BucketsInGraphs::update(GraphCapture& capture, int local_id, const std::function<void()>& act,
                             std::vector<torch::Tensor> used) {
  Joining mine;
  int64_t bytes = 0;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    for (const torch::Tensor& sent : mine.sent.emplace_back(buckets_.packed(local_id, b))) {
      bytes += static_cast<int64_t>(sent.nbytes());
      used.push_back(sent);
    }
  }
  mine.update = [&] {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      const std::vector<torch::Tensor>& home = buckets_.runs(local_id, b);
      for (std::size_t i = 0; i < home.size(); ++i) GradientWire::unpack(mine.sent[b][i], home[i]);
    }
    act();
  };
  if (local_id == 0) {
    const std::string what =
        c10::str("graphs with all_reduce of gradients, ", bytes, " bytes in ", buckets_.size(), " bucket(s)");
    mine.set = std::make_shared<GraphSet>(core_, buckets_.sums(), agreement_, places_, what);
  }
  Rendezvous& meeting = core_.rendezvous();
  GraphCapture::outside([&] { meeting.arrive(local_id, {.what = "the capture of their graphs"}, &mine); });
  const std::size_t device = places_.of[static_cast<std::size_t>(local_id)];
  const bool captures = places_.ranks(device).back() == static_cast<std::size_t>(local_id);
  std::shared_ptr<GraphSet> set;
  meeting.finish(local_id, [&] {
    set = static_cast<const Joining*>(meeting.data(0))->set;
    if (captures) capture_device(device);
  });
  capture.join(set->company_of(local_id, std::move(used)));
  if (!captures) capture.part({.act = [] {}});  // what follows needs the update, which is in the graph of another one
}

void BucketsInGraphs::capture_device(std::size_t device) {
  std::vector<const Joining*> here;
  for (const std::size_t rank : places_.ranks(device)) {
    here.push_back(static_cast<const Joining*>(core_.rendezvous().data(static_cast<int>(rank))));
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    SumsBeside::Tensors sent;
    for (const Joining* const replica : here) sent.push_back(replica->sent[b]);
    buckets_.sums()->capture(device, sent);
  }
  for (const Joining* const replica : here) replica->update();
}

}  // namespace cohort
