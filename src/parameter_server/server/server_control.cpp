// The calls of the coordinator to a parameter server: views, shards that come and go, and their states.
#include <ATen/Functions.h>

#include <algorithm>

#include "base/fail.h"
#include "parameter_server/server/server.h"
#include "parameter_server/view.h"
#include "rpc/calls.h"

namespace cohort {

namespace {

namespace proto = parameter_server;

// The bytes of a shard's state that go in one message.
constexpr int64_t kStateBytes = int64_t{4} << 20;

// The longest time for which a call is held while shards are copied.
constexpr std::chrono::milliseconds kLongestHold(1000);

}  // namespace

void ParameterServer::hello(const Call& call) {
  const auto request = request_of<proto::HelloRequest>(call);
  if (!request.catalog().empty() && request.catalog() != catalog_->description()) {
    fail<FailedPrecondition>("[parameter server] ", name(), " runs another program than the coordinator: ",
                             difference(catalog_->description(), request.catalog()));
  }
  proto::HelloReply reply;
  reply.set_incarnation(fence_.process());
  {
    const std::shared_lock view_lock(view_mutex_);
    const std::unique_lock lock(mutex_);
    last_hello_ = std::chrono::steady_clock::now();
    reply.set_epoch(fence_.epoch());
    *reply.mutable_view() = fence_.view();
  }
  answer(call, reply);
}

// -- Orders, and who may give them.

// The caller holds no mutex. A later coordinator is noted when no update in an earlier one's view is under way, so that
// what it fills now gets none.
void ParameterServer::obey(const proto::Order& order) {
  {
    const std::shared_lock view_lock(view_mutex_);
    if (fence_.is_in_charge(order)) return;
  }
  const std::unique_lock view_lock(view_mutex_);
  fence_.obey(order);
}

void ParameterServer::require_shards_of(const proto::View& view) const {
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    const ShardInfo& place = catalog_->shards()[shard];
    if (shards_[shard] || !fence_.has(view.homes(place.home))) continue;
    fail<FailedPrecondition>("[parameter server] ", name(), " is to serve ", place.spec.name, ", but does not have it");
  }
}

// Goes over to a later view. The caller holds both mutexes.
void ParameterServer::take_view(const proto::View& view) {
  for (uint32_t shard = 0; shard < shards_.size(); ++shard) {
    if (fence_.stays(view, catalog_->shards()[shard].home)) continue;
    shards_[shard].reset();
    arriving_.erase(shard);
  }
  fence_.take(view);
}

void ParameterServer::set_view(const Call& call) {
  const proto::View view = request_of<proto::SetViewRequest>(call).view();
  require_view_of(catalog_->num_servers(), view, name());
  for (const proto::View::Rate& rate : view.rates()) {
    if (rate.variable() < catalog_->variables().size()) continue;
    fail<InvalidArgument>("[parameter server] ", name(), ": a rate came for variable ", rate.variable(), " of ",
                          catalog_->variables().size());
  }
  proto::Order order;
  order.set_epoch(view.epoch());
  obey(order);
  const std::unique_lock view_lock(view_mutex_);
  const std::unique_lock lock(mutex_);
  if (!fence_.is_later(view)) return answer(call);
  require_shards_of(view);
  take_view(view);
  for (const proto::View::Rate& rate : view.rates()) {
    const auto [first, last] = catalog_->shards_of(rate.variable());
    for (std::size_t shard = first; shard < last; ++shard) {
      if (shards_[shard]) shards_[shard]->set_learning_rate(rate.learning_rate());
    }
  }
  answer(call);
}

// -- Shards that come and go.

void ParameterServer::create(const Call& call) {
  const auto request = request_of<proto::CreateRequest>(call);
  obey(request.order());
  for (const uint32_t number : request.shards()) {
    const ShardInfo& place = info(number);
    const ServerVariable& variable = catalog_->variables()[place.variable];
    if (!variable.initializer) {
      fail<FailedPrecondition>("[parameter server] ", name(), ": ", variable.name, " has no initializer here");
    }
    const torch::NoGradGuard no_grad;
    const torch::Tensor value = at::empty(place.spec.shape, place.spec.dtype);
    variable.initializer(value, place.first_row);
    auto shard = std::make_shared<Shard>(place.spec, value, catalog_->optimizer_of(number));
    shard->forget_updates_below(request.next_closure());
    // The initializer may have taken long. A call that was given up meanwhile must not replace a shard in use.
    const std::shared_lock view_lock(view_mutex_);
    const std::unique_lock lock(mutex_);
    fence_.require_fill(request.order(), place.home, /*term=*/0);
    shards_[number] = std::move(shard);
  }
  answer(call);
}

// Returns the shard that a message adds to. Its rows arrive in order, each once, and its progress last, so that a
// served shard is whole.
ParameterServer::Arriving ParameterServer::arriving(const parameter_server::InstallRequest& request) {
  (void)info(request.shard());
  const bool first = request.part() == proto::InstallRequest::FIRST;
  const ShardPtr made = first ? make_shard(request.shard()) : nullptr;
  const std::unique_lock lock(mutex_);
  if (first) arriving_[request.shard()] = {.shard = made, .serial = request.order().serial()};
  const auto found = arriving_.find(request.shard());
  if (found == arriving_.end() || found->second.serial != request.order().serial()) {
    fail<FailedPrecondition>("[parameter server] ", name(), ": a part of shard ", request.shard(),
                             " came before its first one");
  }
  const bool last = request.part() == proto::InstallRequest::PROGRESS;
  const int64_t wanted = last ? found->second.shard->num_rows() : request.first_row();
  if (found->second.rows == wanted) return found->second;
  fail<InvalidArgument>("[parameter server] ", name(), ": shard ", request.shard(), " has ", found->second.rows, " of ",
                        found->second.shard->num_rows(), " rows, but ",
                        last ? std::string("its progress") : c10::str("row ", wanted), " came next");
}

void ParameterServer::install(const Call& call) {
  proto::InstallRequest request;
  FrameReader reader(call->request(), request);
  obey(request.order());
  std::vector<torch::Tensor> tensors;
  while (reader.left() > 0) tensors.push_back(reader.take());
  const std::shared_lock view_lock(view_mutex_);
  {
    const int home = info(request.shard()).home;
    const std::unique_lock lock(mutex_);
    fence_.require_fill(request.order(), home, request.term());
  }
  const Arriving part = arriving(request);
  const bool last = request.part() == proto::InstallRequest::PROGRESS;
  last ? part.shard->load_progress(tensors) : part.shard->load_rows(request.first_row(), tensors);
  arrived(request, part, last ? 0 : tensors.front().size(0));
  answer(call);
}

// Notes that a part of a shard was taken over.
void ParameterServer::arrived(const proto::InstallRequest& request, const Arriving& part, int64_t rows) {
  const std::unique_lock lock(mutex_);
  const auto found = arriving_.find(request.shard());
  if (found == arriving_.end() || found->second.shard != part.shard || found->second.rows != part.rows) {
    fail<FailedPrecondition>("[parameter server] ", name(), ": shard ", request.shard(),
                             " came from two senders at a time");
  }
  found->second.rows += rows;
  if (request.part() != proto::InstallRequest::PROGRESS) return;
  arriving_.erase(found);
  const ServerVariable& variable = catalog_->variables()[info(request.shard()).variable];
  for (const proto::View::Rate& rate : fence_.view().rates()) {
    if (&catalog_->variables()[rate.variable()] == &variable) part.shard->set_learning_rate(rate.learning_rate());
  }
  shards_[request.shard()] = part.shard;
}

void ParameterServer::send_shard(uint32_t number, const ShardCopier::Job& job, const ShardCopier::Sent& sent) {
  RpcClient& to = peer(job.destination);
  const ShardPtr shard = held(number);
  // Updates wait for the snapshot, so that the other server gets all earlier ones with it and all later ones by
  // messages.
  const Shard::Snapshot snapshot = shard->snapshot();
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
  const int64_t rows = std::max<int64_t>(1, kStateBytes / std::max<int64_t>(1, shard->row_bytes()));
  int64_t first = 0;
  do {
    const int64_t count = std::min(rows, shard->num_rows() - first);
    send(first == 0 ? proto::InstallRequest::FIRST : proto::InstallRequest::ROWS, first, snapshot.rows(first, count));
    first += count;
  } while (first < shard->num_rows());
  send(proto::InstallRequest::PROGRESS, 0, snapshot.progress());
}

// The call is held for a moment and made again until the copy is done. So no limit of a call bounds the size of a home,
// and the coordinator sees that the copy makes progress.
void ParameterServer::copy(const Call& call) {
  const auto request = request_of<proto::CopyRequest>(call);
  obey(request.order());
  ShardCopier::Job job{.epoch = request.order().epoch(), .term = request.term(), .home = request.home()};
  {
    const std::shared_lock view_lock(view_mutex_);
    const proto::View::Home& home = fence_.require_copy(request.order(), job.home, job.term);
    job.destination = home.joining();
    job.process = home.joining_process();
  }
  for (const std::size_t shard : catalog_->shards_at(job.home)) job.shards.push_back(static_cast<uint32_t>(shard));
  const auto wait = std::min(std::chrono::milliseconds(request.wait_ms()), kLongestHold);
  const ShardCopier::Progress progress = copier_.go_on(job, wait);
  proto::CopyReply reply;
  reply.set_done(progress.done);
  reply.set_bytes(progress.bytes);
  answer(call, reply);
}

void ParameterServer::state(const Call& call) {
  const auto request = request_of<proto::StateRequest>(call);
  obey(request.order());
  // A server that was restarted and filled is not asked before the view names it. The updates that it lacks are
  // repeated.
  const std::shared_lock view_lock(view_mutex_);
  fence_.require_view(request.order().epoch(), request.order().view());
  (void)require_primary(request.shard());
  const ShardPtr shard = held(request.shard());
  std::vector<torch::Tensor> tensors;
  {
    const Shard::Snapshot snapshot = shard->snapshot();
    tensors = request.progress() ? snapshot.progress() : snapshot.rows(request.first_row(), request.rows());
    for (torch::Tensor& tensor : tensors) tensor = tensor.clone();
  }
  call->reply(make_frame(rpc::Empty(), tensors));
}

// Work is done once the servers of a view have its updates. A server that has been filled since then, which the view
// does not name yet, gets them again.
void ParameterServer::forget(const Call& call) {
  const auto request = request_of<proto::ForgetRequest>(call);
  obey(request.order());
  const std::shared_lock view_lock(view_mutex_);
  fence_.require_view(request.order().epoch(), request.order().view());
  for (uint32_t number = 0; number < catalog_->shards().size(); ++number) {
    if (!fence_.has(fence_.view().homes(info(number).home))) continue;
    if (const ShardPtr shard = find(number)) shard->forget_updates_below(request.closure());
  }
  answer(call);
}

void ParameterServer::stop(const Call& call) {
  obey(request_of<proto::StopRequest>(call).order());
  answer(call);
  const std::unique_lock lock(mutex_);
  stopped_ = true;
}

}  // namespace cohort
