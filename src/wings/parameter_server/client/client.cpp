#include "wings/parameter_server/client/client.h"

#include <algorithm>

#include "base/fail.h"
#include "base/wait_reporting.h"
#include "cohort/cluster/cluster_spec.h"
#include "rpc/frame.h"
#include "rpc/status.h"
#include "wings/parameter_server/heap.h"
#include "wings/parameter_server/view.h"

namespace cohort {

namespace {

namespace proto = parameter_server;
using std::chrono::milliseconds;

// The bytes of tensors that go in one message, unless a single tensor has more.
constexpr int64_t kMessageBytes = int64_t{4} << 20;
// The number of messages on their way to a server: one is being sent, one processed, one on its way back, one ready.
constexpr std::size_t kWindow = 4;
// The pause between two attempts while no new view arrives.
constexpr milliseconds kRetry(100);

int64_t bytes_of(const Pull& pull) {
  return static_cast<int64_t>(pull.out.nbytes());
}
int64_t bytes_of(const Push& push) {
  return static_cast<int64_t>(push.value.nbytes());
}

}  // namespace

ServerClient::ServerClient(std::shared_ptr<const Catalog> catalog, ServerClientOptions options)
    : catalog_(std::move(catalog)), options_(std::move(options)) {
  if (static_cast<int>(options_.addresses.size()) != catalog_->num_servers()) {
    fail<InvalidArgument>("[parameter server] ", options_.addresses.size(), " addresses of servers came, wanted ",
                          catalog_->num_servers());
  }
  keep_freed_memory();
  for (std::size_t i = 0; i < options_.addresses.size(); ++i) {
    servers_.push_back(std::make_unique<RpcClient>(TaskId{"ps", static_cast<int>(i)}.to_string(), options_.addresses[i],
                                                   options_.security));
  }
}

ServerClient::~ServerClient() = default;

void ServerClient::set_view(const proto::View& view) {
  require_view_of(catalog_->num_servers(), view, "this task");
  std::vector<RpcClient*> lost;
  {
    const std::lock_guard lock(mutex_);
    const bool same_run = view.run() == view_.run();  // the servers of another run may count from the beginning
    const auto id_of = [](const proto::View& of) { return std::pair<uint64_t, uint64_t>(of.epoch(), of.number()); };
    if (same_run && id_of(view) <= id_of(view_)) return;
    for (int home = 0; home < view_.homes_size() && home < view.homes_size(); ++home) {
      const int before = view_.homes(home).primary();
      if (before != view.homes(home).primary()) lost.push_back(servers_.at(static_cast<std::size_t>(before)).get());
    }
    view_ = view;
  }
  changed_.notify_all();
  for (RpcClient* server : lost) server->cancel_calls();
}

proto::View ServerClient::view() const {
  const std::lock_guard lock(mutex_);
  return view_;
}

void ServerClient::close(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!closed_) closed_ = reason;
  }
  changed_.notify_all();
  for (const auto& server : servers_) server->cancel_calls();
}

void ServerClient::give_up(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    ++given_up_;
    given_up_for_ = reason;
  }
  changed_.notify_all();
  for (const auto& server : servers_) server->cancel_calls();
}

uint64_t ServerClient::given_up() const {
  const std::lock_guard lock(mutex_);
  return given_up_;
}

void ServerClient::require_open(uint64_t given_up) const {
  const std::lock_guard lock(mutex_);
  if (closed_) fail<Cancelled>("[parameter server] ", *closed_);
  if (given_up_ != given_up) fail<Cancelled>("[parameter server] ", given_up_for_);
}

int ServerClient::primary(const proto::View& view, uint32_t shard) const {
  return view.homes(catalog_->shards().at(shard).home).primary();
}

void ServerClient::await_change(const proto::View& seen, const Deadline& deadline, milliseconds most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::min(most, deadline.left()), [&] {
    return view_.number() != seen.number() || view_.epoch() != seen.epoch() || closed_.has_value();
  });
}

std::future<Frame> ServerClient::start(int server, const std::string& method, const Frame& frame, milliseconds limit) {
  return servers_.at(static_cast<std::size_t>(server))->call(method, frame, limit);
}

Frame ServerClient::call(int server, const std::string& method, const Frame& frame, milliseconds limit) {
  return start(server, method, frame, limit).get();
}

std::unique_ptr<RpcProbe> ServerClient::probe(int server) const {
  return std::make_unique<RpcProbe>(TaskId{"ps", server}.to_string(),
                                    options_.addresses.at(static_cast<std::size_t>(server)), options_.security);
}

// Carries out all pulls, or all pushes, of one request until each has its answer.
template <typename Kind>
class ServerClient::Exchange {
 public:
  Exchange(ServerClient& client, std::vector<Kind>& items, std::optional<UpdateId> unless = {})
      : client_(client), unless_(unless), given_up_(client.given_up()) {
    for (Kind& item : items) open_.push_back(&item);
  }

  void run() {
    if (open_.empty()) return;
    const auto attempt = [&](const Deadline& deadline) -> std::string {
      client_.require_open(given_up_);
      view_ = client_.view();
      if (view_.number() > 0) send_all(deadline);
      if (open_.empty()) return "";
      client_.require_open(given_up_);
      if (!deadline.passed()) client_.await_change(view_, deadline, kRetry);
      return waiting_for() + ": " + reason_;
    };
    wait_reporting<Unavailable>({.who = "[parameter server]", .limit = client_.options_.timeout}, attempt);
  }

 private:
  struct Message {
    int server = 0;
    std::vector<Kind*> items;
    std::future<Frame> answer = {};
  };

  // Returns the messages, which hold what goes to one server together. The servers take turns.
  std::deque<Message> messages() const {
    std::vector<std::vector<Message>> by_server(client_.servers_.size());
    std::vector<int64_t> bytes(client_.servers_.size());
    for (Kind* item : open_) {
      const int server = client_.primary(view_, item->shard);
      auto& own = by_server[static_cast<std::size_t>(server)];
      int64_t& filled = bytes[static_cast<std::size_t>(server)];
      if (own.empty() || filled + bytes_of(*item) > kMessageBytes) {
        own.push_back({.server = server, .items = {}});
        filled = 0;
      }
      own.back().items.push_back(item);
      filled += bytes_of(*item);
    }
    std::deque<Message> list;
    for (std::size_t i = 0, last = 0; i == 0 || i < last; ++i) {
      for (auto& own : by_server) {
        last = std::max(last, own.size());
        if (i < own.size()) list.push_back(std::move(own[i]));
      }
    }
    return list;
  }

  void send_all(const Deadline& deadline) {
    std::deque<Message> waiting = messages();
    std::deque<Message> under_way;
    open_.clear();
    const std::size_t window = kWindow * client_.servers_.size();
    try {
      while (!waiting.empty() || !under_way.empty()) {
        while (!waiting.empty() && under_way.size() < window) {
          Message message = std::move(waiting.front());
          waiting.pop_front();
          message.answer = client_.start(message.server, method(), frame(message),
                                         std::min(client_.options_.call_timeout, deadline.left() + kRetry));
          under_way.push_back(std::move(message));
        }
        Message message = std::move(under_way.front());
        under_way.pop_front();
        finish(message);
      }
    } catch (...) {
      // The tensors of the other messages may not be touched until those are answered.
      for (Message& message : under_way) message.answer.wait();
      throw;
    }
  }

  void finish(Message& message) {
    try {
      take(message.items, message.answer.get());
    } catch (const Error& error) {
      if (!may_pass(error)) throw;
      reason_ = error.what();
      open_.insert(open_.end(), message.items.begin(), message.items.end());
    }
  }

  std::string waiting_for() const {
    if (view_.number() == 0) return "the coordinator's view";
    const uint32_t shard = open_.front()->shard;
    return c10::str(TaskId{"ps", client_.primary(view_, shard)}.to_string(), ", which has ",
                    client_.catalog_->shards()[shard].spec.name);
  }

  static const char* method();
  Frame frame(const Message& message) const;
  void take(const std::vector<Kind*>& items, const Frame& answer) const;

  ServerClient& client_;
  std::optional<UpdateId> unless_;  // only for pulls
  const uint64_t given_up_;
  std::vector<Kind*> open_;
  proto::View view_;
  std::string reason_ = "nothing was heard";
};

template <>
const char* ServerClient::Exchange<Pull>::method() {
  return "/ps/Pull";
}
template <>
const char* ServerClient::Exchange<Push>::method() {
  return "/ps/Push";
}

template <>
Frame ServerClient::Exchange<Pull>::frame(const Message& message) const {
  proto::PullRequest request;
  request.set_view(view_.number());
  request.set_epoch(view_.epoch());
  request.set_element_type(client_.options_.element_type);
  if (unless_) {
    request.mutable_unless()->set_closure(unless_->closure);
    request.mutable_unless()->set_ordinal(unless_->ordinal);
  }
  std::vector<torch::Tensor> tensors;
  for (const Pull* pull : message.items) {
    proto::PullRequest::Item& item = *request.add_items();
    item.set_shard(pull->shard);
    item.set_known(pull->version);
    item.set_by_rows(pull->indices.defined());
    if (pull->indices.defined()) tensors.push_back(pull->indices);
  }
  return make_frame(request, tensors);
}

template <>
void ServerClient::Exchange<Pull>::take(const std::vector<Pull*>& items, const Frame& answer) const {
  proto::PullReply reply;
  FrameReader reader(answer, reply);
  if (reply.items_size() != static_cast<int>(items.size())) {
    fail<DataLoss>("[parameter server] ", reply.items_size(), " values came back, wanted ", items.size());
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    const proto::PullReply::Item& item = reply.items(static_cast<int>(i));
    if (!item.same()) {
      reader.take_into(items[i]->out);
    } else if (items[i]->indices.defined() || items[i]->version < 0) {
      fail<DataLoss>("[parameter server] a server sends no value of shard ", items[i]->shard,
                     ", which is not here either");
    }
    if (!items[i]->indices.defined()) items[i]->version = item.version();
  }
  reader.finish();
}

template <>
Frame ServerClient::Exchange<Push>::frame(const Message& message) const {
  proto::PushRequest request;
  request.set_view(view_.number());
  request.set_epoch(view_.epoch());
  request.set_element_type(client_.options_.element_type);
  std::vector<torch::Tensor> tensors;
  for (const Push* push : message.items) {
    proto::PushRequest::Item& item = *request.add_items();
    item.set_shard(push->shard);
    item.set_kind(push->kind);
    item.set_closure(push->id.closure);
    item.set_ordinal(push->id.ordinal);
    item.set_share(push->share.index);
    item.set_shares(push->share.count);
    item.set_read_back(push->out.defined());
    if (push->kind == proto::PushRequest::ROWS) tensors.push_back(push->indices);
    tensors.push_back(on_the_way(push->value, client_.options_.element_type));
  }
  return make_frame(request, tensors);
}

template <>
void ServerClient::Exchange<Push>::take(const std::vector<Push*>& items, const Frame& answer) const {
  proto::PushReply reply;
  FrameReader reader(answer, reply);
  if (reply.items_size() != static_cast<int>(items.size())) {
    fail<DataLoss>("[parameter server] ", reply.items_size(), " answers to updates came back, wanted ", items.size());
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i]->out.defined()) reader.take_into(items[i]->out);
    items[i]->version = reply.items(static_cast<int>(i)).version();
  }
  reader.finish();
}

void ServerClient::pull(std::vector<Pull>& pulls, const std::optional<UpdateId>& unless) {
  Exchange<Pull>(*this, pulls, unless).run();
}

void ServerClient::push(std::vector<Push>& pushes) {
  Exchange<Push>(*this, pushes).run();
}

}  // namespace cohort
