#include "parameter_server/server/server.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "base/draw.h"
#include "base/error_text.h"
#include "base/fail.h"
#include "base/heap.h"
#include "cohort/cluster/cluster_spec.h"
#include "rpc/calls.h"
#include "rpc/status.h"

namespace cohort {

namespace {

namespace proto = parameter_server;

// The most items of one message for each shard. A client sends the values of a shard, rows of it and what is added to
// it in one message at most, and rows in two pieces.
constexpr std::size_t kItemsOfAShard = 4;

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
      shards_(catalog_->shards().size()),
      copier_([this](uint32_t shard, const ShardCopier::Job& job, const ShardCopier::Sent& sent) {
        send_shard(shard, job, sent);
      }) {
  keep_freed_memory();
}

ParameterServer::~ParameterServer() {
  const std::unique_lock lock(mutex_);
  for (const auto& [index, client] : peers_) client->close();  // a copy under way ends with it
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
  if (found == methods.end()) fail<Unimplemented>("[parameter server] ", name(), " has no call ", method);
  (this->*found->second)(call);
}

const ShardInfo& ParameterServer::info(uint32_t shard) const {
  if (shard < shards_.size()) return catalog_->shards()[shard];
  fail<InvalidArgument>("[parameter server] ", name(), ": shard ", shard, " was asked for, there are ", shards_.size());
}

ParameterServer::ShardPtr ParameterServer::find(uint32_t shard) const {
  (void)info(shard);
  const std::shared_lock lock(mutex_);
  return shards_[shard];
}

ParameterServer::ShardPtr ParameterServer::held(uint32_t shard) const {
  if (ShardPtr found = find(shard)) return found;
  fail<Unavailable>("[parameter server] ", name(), " does not have ", info(shard).spec.name, " (shard ", shard, ")");
}

const proto::View::Home& ParameterServer::require_primary(uint32_t shard) const {
  return fence_.require_primary(info(shard).home);
}

ParameterServer::ShardPtr ParameterServer::make_shard(uint32_t number) const {
  const ShardInfo& place = info(number);
  return std::make_shared<Shard>(place.spec, at::empty(place.spec.shape, place.spec.dtype),
                                 catalog_->optimizer_of(number));
}

RpcClient& ParameterServer::peer(int index) {
  if (index < 0 || index >= static_cast<int>(options_.addresses.size()) || index == options_.index) {
    fail<InvalidArgument>("[parameter server] ", name(), ": ps ", index, " is no other server");
  }
  const std::unique_lock lock(mutex_);
  std::unique_ptr<RpcClient>& client = peers_[index];
  if (client) return *client;
  client = std::make_unique<RpcClient>(TaskId{"ps", index}.to_string(),
                                       options_.addresses[static_cast<std::size_t>(index)], options_.security);
  return *client;
}

void ParameterServer::require_few(int items) const {
  const std::size_t most = kItemsOfAShard * shards_.size() + kItemsOfAShard;
  if (static_cast<std::size_t>(items) <= most) return;
  fail<InvalidArgument>("[parameter server] ", name(), ": a message has ", items, " items, at most ", most,
                        " are taken of ", shards_.size(), " shards");
}

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
    const ShardPtr shard = held(item.shard());
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
    const int number = info(item.shard()).home;
    const proto::View::Home& home = as_backup ? fence_.view().homes(number) : fence_.require_primary(number);
    // A message is passed on whole. Shards of another backup are left out, and so are shards that have not been copied
    // yet, because the copy will contain the update.
    ShardPtr shard;
    if (!as_backup || fence_.require_backup(number)) {
      shard = as_backup && fence_.joins(home) ? find(item.shard()) : held(item.shard());
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
  struct Passing {
    std::shared_ptr<RpcCall> call;
    Applied applied;
    std::atomic<int> left;
    std::mutex mutex;
    std::exception_ptr error;
  };
  const auto passing = std::make_shared<Passing>();
  passing->call = call;
  passing->applied = std::move(applied);
  passing->left = static_cast<int>(passing->applied.backups.size());
  for (const int backup : passing->applied.backups) {
    peer(backup).call("/ps/Replicate", call->request(), options_.timeout,
                      [passing](const Frame& /*reply*/, const std::exception_ptr& error) {
                        if (error) {
                          const std::lock_guard lock(passing->mutex);
                          passing->error = error;
                        }
                        if (--passing->left > 0) return;
                        try {
                          if (passing->error) std::rethrow_exception(passing->error);
                          passing->call->reply(make_frame(passing->applied.reply, passing->applied.values));
                        } catch (const std::exception& failure) {
                          passing->call->fail(Unavailable(error_text(failure)));
                        }
                      });
  }
}

void ParameterServer::replicate(const Call& call) {
  (void)apply(call->request(), /*as_backup=*/true);
  answer(call);
}

}  // namespace cohort
