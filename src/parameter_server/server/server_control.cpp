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
  reply.set_incarnation(incarnation_);
  {
    const std::shared_lock view_lock(view_mutex_);
    const std::unique_lock lock(mutex_);
    last_hello_ = std::chrono::steady_clock::now();
    reply.set_epoch(epoch_);
    *reply.mutable_view() = view_;
    for (uint32_t shard = 0; request.inventory() && shard < shards_.size(); ++shard) {
      if (shards_[shard]) reply.add_shards(shard);
    }
  }
  answer(call, reply);
}

// -- Orders, and who may give them.

void ParameterServer::obey(const proto::Order& order) {
  const std::unique_lock lock(mutex_);
  if (order.epoch() < epoch_) {
    fail<FailedPrecondition>("[parameter server] ", name(), ": an order of epoch ", order.epoch(),
                             " came, but the coordinator of epoch ", epoch_, " is in charge");
  }
  if (order.process() != 0 && order.process() != incarnation_) {
    fail<Unavailable>("[parameter server] ", name(), " was restarted: the order is for another process of it");
  }
  epoch_ = order.epoch();
}

void ParameterServer::require_fill(const proto::Order& order, uint32_t shard, uint64_t term) const {
  const auto given = std::pair(order.epoch(), order.view());
  const auto present = std::pair<uint64_t, uint64_t>(view_.epoch(), view_.number());
  if (term == 0 && given >= present) return;
  if (term != 0 && order.epoch() == view_.epoch() && view_.number() > 0) {
    const proto::View::Home& home = view_.homes(info(shard).home);
    if (home.term() == term && joins(home)) return;
  }
  fail<Unavailable>("[parameter server] ", name(), ": what comes for shard ", shard, " is of view ", order.view(),
                    " of epoch ", order.epoch(), " and term ", term, "; this is view ", view_.number(), " of epoch ",
                    view_.epoch(), ", in which it has no place");
}

void ParameterServer::require_shards_of(const proto::View& view) const {
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    const ShardInfo& place = catalog_->shards()[shard];
    if (shards_[shard] || !has(view.homes(place.home))) continue;
    fail<FailedPrecondition>("[parameter server] ", name(), " is to serve ", place.spec.name, ", but does not have it");
  }
}

// Goes over to a later view. The caller holds both mutexes.
void ParameterServer::take_view(const proto::View& view) {
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    const int number = catalog_->shards()[shard].home;
    const proto::View::Home& home = view.homes(number);
    // What has arrived for a home that this server joins stays, as long as it is the same copy.
    const bool goes_on =
        joins(home) && view_.number() > 0 && view_.epoch() == view.epoch() && view_.homes(number).term() == home.term();
    if (has(home) || goes_on) continue;
    shards_[shard].reset();
    arriving_.erase(static_cast<uint32_t>(shard));
  }
  view_ = view;
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
  const auto id_of = [](const proto::View& of) { return std::pair<uint64_t, uint64_t>(of.epoch(), of.number()); };
  if (id_of(view) < id_of(view_)) {
    fail<FailedPrecondition>("[parameter server] ", name(), ": view ", view.number(), " came after view ",
                             view_.number());
  }
  if (id_of(view) == id_of(view_)) {
    if (view.SerializeAsString() == view_.SerializeAsString()) return answer(call);
    fail<FailedPrecondition>("[parameter server] ", name(), ": there are two different views of number ", view.number(),
                             " in epoch ", view.epoch());
  }
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
    require_fill(request.order(), number);
    const std::unique_lock lock(mutex_);
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
  obey(request.order());
  std::vector<torch::Tensor> tensors;
  while (reader.left() > 0) tensors.push_back(reader.take());
  const std::shared_lock view_lock(view_mutex_);
  (void)info(request.shard());
  require_fill(request.order(), request.shard(), request.term());
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
  for (const proto::View::Rate& rate : view_.rates()) {
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
    const bool known = view_.number() > 0 && view_.epoch() == job.epoch && job.home >= 0 &&
                       job.home < view_.homes_size() && view_.homes(job.home).term() == job.term;
    if (!known || !is_me(view_.homes(job.home).primary(), view_.homes(job.home).primary_process()) ||
        view_.homes(job.home).joining() < 0) {
      fail<Unavailable>("[parameter server] ", name(), ": a copy of home ", job.home, " in term ", job.term,
                        " of epoch ", job.epoch, " was ordered, this is view ", view_.number(), " of epoch ",
                        view_.epoch());
    }
    job.destination = view_.homes(job.home).joining();
    job.process = view_.homes(job.home).joining_process();
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
  require_view(request.order().epoch(), request.order().view());
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
  require_view(request.order().epoch(), request.order().view());
  for (uint32_t number = 0; number < catalog_->shards().size(); ++number) {
    if (!has(view_.homes(info(number).home))) continue;
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
