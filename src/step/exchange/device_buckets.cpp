// A replica that has all gradients of a bucket says so, and the last one begins the sum for all. So no thread waits for
// another one in backward, where that of a device may serve several replicas. Sums begin in the order of the plan,
// which is the same in all processes: a bucket that is full before its turn waits for those before it.
#include "step/exchange/device_buckets.h"

#include <algorithm>

#include "base/fail.h"

namespace cohort {

namespace {

// Says which elements travel in which bucket: "gradients in 2 buckets: 0[0, 64) 0[96, 128); 0[64, 96)".
std::string described(const std::vector<Bucket>& plan) {
  std::string text = c10::str("gradients in ", plan.size(), " buckets:");
  for (const Bucket& bucket : plan) {
    if (&bucket != plan.data()) text += ";";
    for (const BucketRun& run : bucket.runs) text += c10::str(" ", run.group, "[", run.begin, ", ", run.end, ")");
  }
  return text;
}

// Throws DataLoss unless an order, which may come from another process, has all parameters once.
void require_whole(std::vector<std::size_t> order) {
  std::sort(order.begin(), order.end());
  for (std::size_t p = 0; p < order.size(); ++p) {
    if (order[p] == p) continue;
    fail<DataLoss>("[optimizer] the order of the gradients of ", order.size(), " parameters that the first worker ",
                   "tells does not have number ", p, " once");
  }
}

}  // namespace

DeviceBuckets::DeviceBuckets(StrategyCore& core, FlatParameters& flat, FlatGradients& gradients,
                             std::shared_ptr<SumsBeside> sums, GradientWire wire, PlanBuckets plan)
    : core_(core),
      flat_(flat),
      gradients_(gradients),
      sums_(std::move(sums)),
      wire_(wire),
      plan_(std::move(plan)),
      replicas_(static_cast<std::size_t>(core.num_local_replicas())),
      owns_(replicas_),
      watched_(flat, [this](int local_id, std::size_t p) { came(local_id, p); }) {}

// What an earlier step that failed has begun may still use the gradients' memory.
void DeviceBuckets::begin_step(int local_id) {
  Own& mine = own(local_id);
  const uint64_t run = core_.rendezvous().runs();
  if (mine.tag && mine.tag->run != run) mine.steps = 0;
  const Tag now{.run = run, .step = mine.steps};
  if (mine.tag == now) return;
  {
    const std::lock_guard lock(mutex_);
    for (const Travelling& bucket : buckets_) {
      if (!mine.ended && !bucket.ends.empty()) wait(local_id, bucket.ends[static_cast<std::size_t>(local_id)]);
    }
    if (tag_ != now) {  // the first replica that comes to a step begins all buckets anew
      tag_ = now;
      begun_ = 0;
      for (Travelling& bucket : buckets_) bucket.came = 0;
    }
  }
  mine.tag = now;
  mine.ended = false;
  mine.came.assign(flat_.parameters().size(), 0);
  mine.order.clear();
  mine.missing.clear();
  for (const Travelling& bucket : buckets_) mine.missing.push_back(bucket.plan.parameters.size());
}

void DeviceBuckets::backward(int local_id, const torch::Tensor& loss) {
  sums_->require_well();
  begin_step(local_id);
  watched_.run(local_id, loss);
}

void DeviceBuckets::came(int local_id, std::size_t parameter) {
  Own& mine = own(local_id);
  const int times = ++mine.came[parameter];
  if (buckets_.empty()) {
    if (times == 1) mine.order.push_back(parameter);
    return;
  }
  if (times > expected_[parameter]) {
    fail<FailedPrecondition>("[optimizer] minimize: the gradient of ", flat_.parameters()[parameter].name, " comes ",
                             times, " times in one backward, which in the first step it did ", expected_[parameter],
                             " time(s); take gradients() and apply_gradients() for such a loss");
  }
  if (times == expected_[parameter]) put(local_id, parameter, flat_.tensors(local_id)[parameter].grad());
}

void DeviceBuckets::put(int local_id, std::size_t parameter, const torch::Tensor& gradient) {
  const torch::NoGradGuard no_grad;
  gradients_.put(local_id, parameter, gradient);
  has(local_id, parameter);
}

void DeviceBuckets::has(int local_id, std::size_t parameter) {
  for (const std::size_t bucket : buckets_of_[parameter]) {
    if (--own(local_id).missing[bucket] == 0) leave(local_id, bucket);
  }
}

void DeviceBuckets::leave(int local_id, std::size_t bucket) {
  const auto me = static_cast<std::size_t>(local_id);
  Travelling& travelling = buckets_[bucket];
  std::vector<torch::Tensor> sent = packed(local_id, bucket);
  PointPtr ready = sums_->mark(local_id);
  const std::lock_guard lock(mutex_);
  travelling.sent[me] = std::move(sent);
  travelling.ready[me] = std::move(ready);
  if (++travelling.came == replicas_) begin_sums();
}

void DeviceBuckets::begin_sums() {
  for (; begun_ < buckets_.size() && buckets_[begun_].came == replicas_; ++begun_) {
    Travelling& next = buckets_[begun_];
    next.ends =
        sums_->begin(c10::str("gradients, bucket ", begun_ + 1, " of ", buckets_.size()), next.sent, next.ready);
  }
}

std::vector<torch::Tensor> DeviceBuckets::packed(int local_id, std::size_t bucket) const {
  std::vector<torch::Tensor> sent;
  for (const torch::Tensor& run : runs(local_id, bucket)) sent.push_back(wire_.packed(run));
  return sent;
}

void DeviceBuckets::complete(int local_id, const std::vector<torch::Tensor>* gradients) {
  begin_step(local_id);
  Own& mine = own(local_id);
  const bool planned = !buckets_.empty();
  if (planned) put_missing(local_id, gradients);
  Launch& launch = core_.launch();
  launch.arrive(local_id, "the exchange of the gradients");
  ++mine.steps;
  if (!planned) {
    if (local_id == 0) plan_by_first_step();
    launch.sync(local_id);
    for (const Travelling& bucket : buckets_) mine.missing.push_back(bucket.plan.parameters.size());
    mine.came.assign(mine.came.size(), 0);
    put_missing(local_id, gradients);
    launch.sync(local_id);
  }
  launch.depart(local_id);
  sums_->require_well();
}

void DeviceBuckets::put_missing(int local_id, const std::vector<torch::Tensor>* gradients) {
  for (std::size_t p = expected_.size(); p-- > 0;) {
    if (own(local_id).came[p] >= expected_[p]) continue;
    gradients == nullptr ? has(local_id, p) : put(local_id, p, (*gradients)[p]);
  }
}

// Gradients that the first step does not bring are taken to come last, those of late layers first. Processes may differ
// in the order in which gradients come, and take that of the first one.
void DeviceBuckets::plan_by_first_step() {
  const Own& first = owns_.front();
  std::vector<int64_t> agreed(first.order.begin(), first.order.end());
  for (std::size_t p = flat_.parameters().size(); p-- > 0;) {
    if (first.came[p] == 0) agreed.push_back(static_cast<int64_t>(p));
  }
  sums_->take_first(agreed);
  std::vector<std::size_t> order(agreed.begin(), agreed.end());
  require_whole(order);
  std::vector<Bucket> plan = plan_(order);
  sums_->require_same(described(plan));
  for (const int times : first.came) expected_.push_back(std::max(1, times));
  buckets_of_.resize(flat_.parameters().size());
  for (Bucket& bucket : plan) {
    for (const std::size_t p : bucket.parameters) buckets_of_[p].push_back(buckets_.size());
    Travelling& travelling = buckets_.emplace_back();
    travelling.plan = std::move(bucket);
    travelling.sent.resize(replicas_);
    travelling.ready.resize(replicas_);
    for (std::size_t r = 0; r < replicas_; ++r) {
      std::vector<torch::Tensor>& home = travelling.home.emplace_back();
      for (const BucketRun& run : travelling.plan.runs) {
        home.push_back(gradients_.of(static_cast<int>(r))[run.group].slice(0, run.begin, run.end));
      }
    }
  }
}

void DeviceBuckets::wait(int local_id, const std::vector<PointPtr>& ends) const {
  for (const PointPtr& end : ends) end->wait(core_.replica(local_id).device());
}

// Until all replicas come to a bucket again, what this one has of it stays as it is.
void DeviceBuckets::each(int local_id, const std::function<void(std::span<const std::size_t> parameters)>& take) {
  const auto me = static_cast<std::size_t>(local_id);
  for (Travelling& bucket : buckets_) {
    wait(local_id, bucket.ends[me]);
    for (std::size_t i = 0; i < bucket.home[me].size(); ++i) {
      GradientWire::unpack(bucket.sent[me][i], bucket.home[me][i]);
    }
    bucket.sent[me].clear();
    take(bucket.plan.completed);
  }
  own(local_id).ended = true;
}

void DeviceBuckets::begin_apart(int local_id) {
  begin_step(local_id);
  own(local_id).ended = true;
}

}  // namespace cohort
