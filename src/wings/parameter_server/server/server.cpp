#include "wings/parameter_server/server/server.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "base/draw.h"
#include "base/error_text.h"
#include "base/fail.h"
#include "cohort/cluster/cluster_spec.h"
#include "rpc/calls.h"
#include "rpc/status.h"
#include "wings/parameter_server/heap.h"
#include "wings/parameter_server/view.h"

namespace cohort {

namespace {

namespace proto = parameter_server;

// The most items of one message for each shard. A client sends the values of a shard, rows of it and what is added to
// it in one message at most, and rows in two pieces.
constexpr std::size_t kItemsOfAShard = 4;

// The longest time for which a call is held while shards are copied.
constexpr std::chrono::milliseconds kLongestHold(1000);

// Sums up what the values of one answer take. A short question must not make a long answer: one that could not be sent
// is refused before there is memory for it.
class AnswerSize {
 public:
  explicit AnswerSize(std::string server) : server_(std::move(server)) {}

  void add_rows(const ShardSpec& spec, int64_t rows) {
    const auto width = spec.shape.empty() ? 1 : c10::multiply_integers(spec.shape.begin() + 1, spec.shape.end());
    const auto row_bytes = width * static_cast<int64_t>(c10::elementSize(spec.dtype));
    if (__builtin_mul_overflow(rows, row_bytes, &rows) || __builtin_add_overflow(bytes_, rows, &bytes_) ||
        bytes_ > kLongestFrame) {
      fail<InvalidArgument>("[parameter server] ", server_, ": the values that were asked for at once have more than ",
                            kLongestFrame, " bytes, which is too long for one answer");
    }
  }
  void add(const Shard& shard) { add_rows(shard.spec(), shard.num_rows()); }

 private:
  std::string server_;
  int64_t bytes_ = 0;
};

}  // namespace

ParameterServer::ParameterServer(std::shared_ptr<const Catalog> catalog, ServingOptions options)
    : catalog_(std::move(catalog)),
      options_(std::move(options)),
      fence_(options_.index, draw_number(), name()),
      shards_(catalog_, name()),
      peers_(options_, name()),
      copier_([this](uint32_t shard, const ShardCopier::Job& job, const ShardCopier::Sent& sent) {
        peers_.send_shard(shard, *shards_.held(shard), job, sent);
      }) {
  keep_freed_memory();
}

ParameterServer::~ParameterServer() {
  peers_.close();  // a copy under way ends with it
}

std::string ParameterServer::name() const {
  return TaskId{"ps", options_.index}.to_string();
}

bool ParameterServer::stopped() const {
  const std::shared_lock lock(mutex_);
  return stopped_;
}

std::chrono::steady_clock::time_point ParameterServer::last_hello() const {
  const std::shared_lock lock(mutex_);
  return last_hello_;
}

void ParameterServer::handle(const std::string& method, const Call& call) {
  static const std::map<std::string, void (ParameterServer::*)(const Call&)> methods = {
      {"/ps/Pull", &ParameterServer::pull},           {"/ps/Push", &ParameterServer::push},
      {"/ps/Replicate", &ParameterServer::replicate}, {"/ps/Hello", &ParameterServer::hello},
      {"/ps/SetView", &ParameterServer::set_view},    {"/ps/Create", &ParameterServer::create},
      {"/ps/Install", &ParameterServer::install},     {"/ps/Copy", &ParameterServer::copy},
      {"/ps/State", &ParameterServer::state},         {"/ps/Forget", &ParameterServer::forget},
      {"/ps/Stop", &ParameterServer::stop},
  };
  const auto found = methods.find(method);
  if (found == methods.end()) fail_to_find_call("[parameter server] " + name(), method);
  (this->*found->second)(call);
}

const proto::View::Home& ParameterServer::require_primary(uint32_t shard) const {
  return fence_.require_primary(shards_.info(shard).home);
}

void ParameterServer::require_few(int items) const {
  const std::size_t most = kItemsOfAShard * shards_.size() + kItemsOfAShard;
  if (static_cast<std::size_t>(items) <= most) return;
  fail<InvalidArgument>("[parameter server] ", name(), ": a message has ", items, " items, at most ", most,
                        " are taken of ", shards_.size(), " shards");
}

// -- Calls of workers, and what a primary passes on.

void ParameterServer::pull(const Call& call) {
  proto::PullRequest request;
  FrameReader reader(call->request(), request);
  require_few(request.items_size());
  const std::shared_lock view_lock(view_mutex_);
  fence_.require_view(request.epoch(), request.view());
  proto::PullReply reply;
  std::vector<torch::Tensor> tensors;
  AnswerSize size(name());
  for (const proto::PullRequest::Item& item : request.items()) {
    (void)require_primary(item.shard());
    const ShardPtr shard = shards_.held(item.shard());
    proto::PullReply::Item& answered = *reply.add_items();
    if (item.by_rows()) {
      const torch::Tensor indices = reader.take();
      size.add_rows(shard->spec(), indices.numel());
      tensors.push_back(on_the_way(shard->read_rows(indices), request.element_type()));
    } else if (std::optional<Shard::Value> read = shard->read(item.known())) {
      size.add(*shard);
      tensors.push_back(on_the_way(read->value, request.element_type()));
      answered.set_version(read->version);
    } else {
      answered.set_version(item.known());
      answered.set_same(true);
    }
    // This is asked after the reading: values from before the update may be refused, but newer ones are never returned.
    const UpdateId unless{.closure = request.unless().closure(), .ordinal = request.unless().ordinal()};
    if (request.has_unless() && shard->has_update(unless)) {
      fail<Overtaken>("[parameter server] ", name(), ": another worker has made update ", unless.ordinal,
                      " of closure ", unless.closure);
    }
  }
  reader.finish();
  call->reply(make_frame(reply, tensors));
}

bool ParameterServer::apply_item(Shard& shard, const proto::PushRequest::Item& item, FrameReader& reader) {
  const UpdateId id{.closure = item.closure(), .ordinal = item.ordinal()};
  const Share share{.index = item.share(), .count = std::max<int64_t>(1, item.shares())};
  const auto value = [&] { return reader.take().to(shard.spec().dtype); };
  switch (item.kind()) {
    case proto::PushRequest::GRADIENT:
      return shard.apply_gradient(id, value(), share);
    case proto::PushRequest::ROWS: {
      const torch::Tensor indices = reader.take();
      return shard.apply_rows(id, indices, value(), share);
    }
    case proto::PushRequest::ASSIGN:
      return shard.assign(id, value());
    case proto::PushRequest::ADD:
      return shard.add(id, value());
    default:
      fail<InvalidArgument>("[parameter server] ", name(), ": an update of kind ", static_cast<int>(item.kind()));
  }
}

ParameterServer::Applied ParameterServer::apply(const Frame& frame, bool as_backup) {
  proto::PushRequest request;
  FrameReader reader(frame, request);
  require_few(request.items_size());
  const std::shared_lock view_lock(view_mutex_);
  fence_.require_view(request.epoch(), request.view());
  Applied applied;
  AnswerSize size(name());
  for (const proto::PushRequest::Item& item : request.items()) {
    const int number = shards_.info(item.shard()).home;
    const proto::View::Home& home = as_backup ? fence_.view().homes(number) : fence_.require_primary(number);
    // A message is passed on whole. Shards of another backup are left out, and so are shards that have not been copied
    // yet, because the copy will contain the update.
    ShardPtr shard;
    if (!as_backup || fence_.require_backup(number)) {
      shard = as_backup && fence_.joins(home) ? shards_.find(item.shard()) : shards_.held(item.shard());
    }
    if (!shard) {
      (void)reader.take();
      if (item.kind() == proto::PushRequest::ROWS) (void)reader.take();
      continue;
    }
    if (item.read_back() && !as_backup) size.add(*shard);
    proto::PushReply::Item& answered = *applied.reply.add_items();
    answered.set_is_new(apply_item(*shard, item, reader));
    for (const int other : {home.backup(), home.joining()}) {
      if (other >= 0) applied.backups.insert(other);
    }
    if (as_backup) continue;
    if (item.read_back()) {
      const Shard::Value value = *shard->read();
      answered.set_version(value.version);
      applied.values.push_back(on_the_way(value.value, request.element_type()));
    } else {
      answered.set_version(shard->version());
    }
  }
  reader.finish();
  return applied;
}

void ParameterServer::push(const Call& call) {
  Applied applied = apply(call->request(), /*as_backup=*/false);
  if (applied.backups.empty()) return call->reply(make_frame(applied.reply, applied.values));
  pass_on(call, std::move(applied));
}

// Passes an update on to the backups, and answers when every backup has it, so that an answered update outlives this
// server. An update that a backup refuses is not answered; the caller tries again in the next view.
void ParameterServer::pass_on(const Call& call, Applied applied) {
  const auto shared = std::make_shared<const Applied>(std::move(applied));
  peers_.replicate(shared->backups, call->request(), [call, shared](const std::exception_ptr& error) {
    try {
      if (error) std::rethrow_exception(error);
      call->reply(make_frame(shared->reply, shared->values));
    } catch (const std::exception& failure) {
      call->fail(Unavailable(error_text(failure)));
    }
  });
}

void ParameterServer::replicate(const Call& call) {
  (void)apply(call->request(), /*as_backup=*/true);
  answer(call);
}

// -- Calls of the coordinator.

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
  shards_.require([&](int home) { return fence_.has(view.homes(home)); });
  shards_.keep([&](int home) { return fence_.stays(view, home); });
  fence_.take(view);
  shards_.set_learning_rates(view.rates());
  answer(call);
}

void ParameterServer::create(const Call& call) {
  const auto request = request_of<proto::CreateRequest>(call);
  obey(request.order());
  for (const uint32_t number : request.shards()) {
    const ShardInfo& place = shards_.info(number);
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
    shards_.put(number, std::move(shard));
  }
  answer(call);
}

void ParameterServer::install(const Call& call) {
  proto::InstallRequest request;
  FrameReader reader(call->request(), request);
  obey(request.order());
  std::vector<torch::Tensor> tensors;
  while (reader.left() > 0) tensors.push_back(reader.take());
  const std::shared_lock view_lock(view_mutex_);
  {
    const int home = shards_.info(request.shard()).home;
    const std::unique_lock lock(mutex_);
    fence_.require_fill(request.order(), home, request.term());
  }
  shards_.take_part(request, tensors, fence_.view().rates());
  answer(call);
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
  const ShardPtr shard = shards_.held(request.shard());
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
    if (!fence_.has(fence_.view().homes(shards_.info(number).home))) continue;
    if (const ShardPtr shard = shards_.find(number)) shard->forget_updates_below(request.closure());
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
