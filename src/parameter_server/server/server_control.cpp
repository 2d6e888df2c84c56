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

}  // namespace

void ParameterServer::hello(const Call& call) {
  const auto request = request_of<proto::HelloRequest>(call);
  if (!request.catalog().empty() && request.catalog() != catalog_->description()) {
    fail<FailedPrecondition>("[parameter server] ", name(), " runs another program than the coordinator: ",
                             difference(catalog_->description(), request.catalog()));
  }
  proto::HelloReply reply;
  reply.set_incarnation(incarnation_);
  {
    const std::shared_lock view_lock(view_mutex_);
    const std::unique_lock lock(mutex_);
    last_hello_ = std::chrono::steady_clock::now();
    *reply.mutable_view() = view_;
    for (uint32_t shard = 0; request.inventory() && shard < shards_.size(); ++shard) {
      if (shards_[shard]) reply.add_shards(shard);
    }
  }
  answer(call, reply);
}

void ParameterServer::set_view(const Call& call) {
  const proto::View view = request_of<proto::SetViewRequest>(call).view();
  require_view_of(catalog_->num_servers(), view, name());
  const std::unique_lock view_lock(view_mutex_);
  const std::unique_lock lock(mutex_);
  if (view.number() < view_.number()) {
    fail<FailedPrecondition>("[parameter server] ", name(), ": view ", view.number(), " came after view ",
                             view_.number());
  }
  for (const proto::View::Rate& rate : view.rates()) {
    if (rate.variable() < catalog_->variables().size()) continue;
    fail<InvalidArgument>("[parameter server] ", name(), ": a rate came for variable ", rate.variable(), " of ",
                          catalog_->variables().size());
  }
  const auto ours = [&](const proto::View::Home& home) {
    return home.primary() == options_.index || home.backup() == options_.index;
  };
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    const ShardInfo& place = catalog_->shards()[shard];
    if (shards_[shard] || !ours(view.homes(place.home))) continue;
    fail<FailedPrecondition>("[parameter server] ", name(), " is to serve ", place.spec.name, ", but does not have it");
  }
  const bool is_new = view.number() > view_.number();
  view_ = view;
  for (std::size_t shard = 0; is_new && shard < shards_.size(); ++shard) {
    if (!ours(view.homes(catalog_->shards()[shard].home))) shards_[shard].reset();
  }
  for (const proto::View::Rate& rate : view.rates()) {
    const auto [first, last] = catalog_->shards_of(rate.variable());
    for (std::size_t shard = first; shard < last; ++shard) {
      if (shards_[shard]) shards_[shard]->set_learning_rate(rate.learning_rate());
    }
  }
  answer(call);
}

void ParameterServer::create(const Call& call) {
  const auto request = request_of<proto::CreateRequest>(call);
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
    keep(number, std::move(shard));
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
  if (first) arriving_[request.shard()] = {.shard = made};
  const auto found = arriving_.find(request.shard());
  if (found == arriving_.end()) {
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
  std::vector<torch::Tensor> tensors;
  while (reader.left() > 0) tensors.push_back(reader.take());
  const Arriving part = arriving(request);
  const bool last = request.part() == proto::InstallRequest::PROGRESS;
  last ? part.shard->load_progress(tensors) : part.shard->load_rows(request.first_row(), tensors);
  const std::unique_lock lock(mutex_);
  const auto found = arriving_.find(request.shard());
  if (found == arriving_.end() || found->second.shard != part.shard || found->second.rows != part.rows) {
    fail<FailedPrecondition>("[parameter server] ", name(), ": shard ", request.shard(),
                             " came from two senders at a time");
  }
  if (last) {
    arriving_.erase(found);
    shards_[request.shard()] = part.shard;
  } else {
    found->second.rows += tensors.front().size(0);
  }
  answer(call);
}

void ParameterServer::send_shard(uint32_t number, RpcClient& to) {
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
    (void)to.call("/ps/Install", make_frame(request, tensors), options_.timeout).get();
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

void ParameterServer::copy(const Call& call) {
  const auto request = request_of<proto::CopyRequest>(call);
  RpcClient& to = peer(request.destination());
  for (const uint32_t number : request.shards()) send_shard(number, to);
  answer(call);
}

void ParameterServer::state(const Call& call) {
  const auto request = request_of<proto::StateRequest>(call);
  // A server that was restarted and filled is not asked before the view names it. The updates that it lacks are
  // repeated.
  const std::shared_lock view_lock(view_mutex_);
  require_view(request.view());
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

void ParameterServer::forget(const Call& call) {
  const auto request = request_of<proto::ForgetRequest>(call);
  std::vector<ShardPtr> shards;
  {
    const std::shared_lock lock(mutex_);
    shards = shards_;
  }
  for (const ShardPtr& shard : shards) {
    if (shard) shard->forget_updates_below(request.closure());
  }
  answer(call);
}

void ParameterServer::stop(const Call& call) {
  (void)request_of<proto::StopRequest>(call);
  answer(call);
  const std::unique_lock lock(mutex_);
  stopped_ = true;
}

}  // namespace cohort
