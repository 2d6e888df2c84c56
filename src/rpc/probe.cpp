#include "rpc/probe.h"

#include <condition_variable>
#include <optional>

#include "base/deadline.h"
#include "base/fail.h"
#include "rpc/status.h"

namespace cohort {

// One call that is under way on several connections.
class RpcProbe::Race : public std::enable_shared_from_this<Race> {
 public:
  // Sends the call by a further client.
  void send(const std::shared_ptr<RpcClient>& client, const std::string& method, const Frame& frame,
            std::chrono::milliseconds limit) {
    int number = 0;
    {
      const std::lock_guard lock(mutex_);
      number = sent_++;
      ++pending_;
    }
    client->call(method, frame, limit,
                 [self = shared_from_this(), number](const Frame& reply, const std::exception_ptr& error) {
                   self->end(number, reply, error);
                 });
  }
  // Returns whether the call has ended by then: it was answered, or it has failed on all connections.
  bool wait_for(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, time, [&] { return has_ended(); });
  }
  // Waits for the end. Returns the number of the sending that was answered, or nothing.
  std::optional<int> winner() {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return has_ended(); });
    return winner_;
  }
  int sent() const {
    const std::lock_guard lock(mutex_);
    return sent_;
  }
  // Returns the reply or throws the error of the call, which has ended.
  Frame result() const {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    return reply_;
  }

 private:
  bool has_ended() const { return winner_.has_value() || pending_ == 0; }
  // Returns whether the other end has answered, if only by an error.
  static bool is_answer(const std::exception_ptr& error) {
    if (!error) return true;
    try {
      std::rethrow_exception(error);
    } catch (const Error& what) {
      return !may_pass(what);
    } catch (...) {
      return true;
    }
  }
  void end(int number, const Frame& reply, const std::exception_ptr& error) {
    const std::lock_guard lock(mutex_);
    --pending_;
    if (!winner_) {
      const bool answered = is_answer(error);
      if (answered) winner_ = number;
      if (answered) reply_ = reply;
      if (answered || number == 0 || !error_) error_ = error;
    }
    ended_.notify_all();
  }

  mutable std::mutex mutex_;
  std::condition_variable ended_;
  int sent_ = 0;
  int pending_ = 0;
  std::optional<int> winner_;
  Frame reply_;
  std::exception_ptr error_;  // that of the answer, or that of the first sending
};

RpcProbe::RpcProbe(std::string name, Open open, const RpcClientOptions& options)
    : name_(std::move(name)), open_(std::move(open)), options_(options) {
  (void)kept_client();
}

RpcProbe::RpcProbe(std::string name, const std::string& address, const SecurityOptions& security)
    : RpcProbe(std::move(name), [address, security] { return open_channel(address, security); }) {}

RpcProbe::~RpcProbe() = default;

// The caller holds mutex_.
std::shared_ptr<RpcClient> RpcProbe::open_client() {
  if (closed_) fail<Cancelled>("[rpc] no call of ", name_, " is made any more");
  std::erase_if(opened_, [](const auto& each) { return each.expired(); });
  auto client = std::make_shared<RpcClient>(name_, open_(), options_);
  opened_.push_back(client);
  return client;
}

std::shared_ptr<RpcClient> RpcProbe::kept_client() {
  const std::lock_guard lock(mutex_);
  if (!client_ || closed_) client_ = open_client();
  return client_;
}

std::shared_ptr<RpcClient> RpcProbe::further_client() {
  const std::lock_guard lock(mutex_);
  return closed_ ? nullptr : open_client();
}

Frame RpcProbe::call(const std::string& method, const Frame& frame, std::chrono::milliseconds limit,
                     std::chrono::milliseconds again) {
  const Deadline deadline(limit);
  const auto race = std::make_shared<Race>();
  const std::shared_ptr<RpcClient> first = kept_client();
  std::shared_ptr<RpcClient> latest = first;
  race->send(first, method, frame, limit);
  while (again < deadline.left() && !race->wait_for(again)) {
    std::shared_ptr<RpcClient> next = further_client();
    if (!next) break;  // closed: the calls under way end
    race->send(next, method, frame, deadline.left());
    latest = std::move(next);
  }
  const std::optional<int> winner = race->winner();
  if (winner != 0) {
    const std::lock_guard lock(mutex_);
    if (client_ == first) client_ = winner == race->sent() - 1 ? latest : nullptr;
  }
  return race->result();
}

void RpcProbe::close() {
  std::vector<std::shared_ptr<RpcClient>> clients;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (const auto& each : opened_) {
      if (auto client = each.lock()) clients.push_back(std::move(client));
    }
    client_ = nullptr;
  }
  for (const auto& client : clients) client->close();
}

}  // namespace cohort
