// A thread serves the connections to all other ranks. Ranks without an identity meet as others do, by one that
// everybody knows, and then do not encrypt what they send.
#include "collective/tcp/tcp.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/error_text.h"
#include "base/fail.h"
#include "collective/tcp/connection.h"
#include "rpc/shared_secret.h"

namespace cohort {

namespace {

class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(const Meeting& meeting) : meeting_(meeting), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    std::vector<Link> links = connect_links(meeting);
    for (int rank = 0; rank < meeting.size; ++rank) {
      connections_.push_back(
          std::make_unique<Connection>(std::move(links[static_cast<std::size_t>(rank)]), c10::str("rank ", rank)));
    }
    if (meeting.size > 1) server_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
  }
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;
  ~TcpTransport() override {
    server_.request_stop();
    wake();
    if (server_.joinable()) server_.join();
    ::close(wake_);
  }

  std::string_view name() const override { return "tcp"; }
  int rank() const override { return meeting_.rank; }
  int size() const override { return meeting_.size; }

  std::unique_ptr<Message> send(int to, std::span<const std::byte> bytes, Lane lane) override {
    Connection& connection = *connections_.at(static_cast<std::size_t>(to));
    auto transfer = connection.send(next_slot(sent_, to, lane), bytes);
    if ((connection.wanted_events() & POLLOUT) != 0) wake();
    return std::make_unique<Part>(connection, std::move(transfer), meeting_.timeout);
  }

  std::unique_ptr<Message> receive(int from, std::span<std::byte> bytes, Lane lane) override {
    Connection& connection = *connections_.at(static_cast<std::size_t>(from));
    return std::make_unique<Part>(connection, connection.receive(next_slot(received_, from, lane), bytes),
                                  meeting_.timeout);
  }

  std::unique_ptr<Transport> subset(std::span<const int> ranks, const std::string& name) override {
    Meeting meeting = meeting_;
    meeting.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
    meeting.size = static_cast<int>(ranks.size());
    meeting.prefix += name + "/";
    return make_tcp(meeting);
  }

  void abort() noexcept override {
    for (const auto& connection : connections_) connection->end_waits();
  }

 private:
  using Counts = std::map<std::pair<int, Lane>, uint64_t>;

  class Part final : public Message {
   public:
    Part(Connection& connection, Connection::TransferPtr transfer, std::chrono::milliseconds timeout)
        : connection_(connection), transfer_(std::move(transfer)), timeout_(timeout) {}
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
    ~Part() override { connection_.give_up(transfer_); }

    void wait() override { connection_.wait(*transfer_, Deadline(timeout_)); }

   private:
    Connection& connection_;
    Connection::TransferPtr transfer_;
    std::chrono::milliseconds timeout_;
  };

  uint64_t next_slot(Counts& counts, int peer, Lane lane) {
    constexpr int kCountBits = 40;
    const std::lock_guard lock(mutex_);
    return (uint64_t{lane} << kCountBits) | counts[{peer, lane}]++;
  }

  void wake() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof(one));
  }

  void serve(const std::stop_token& stop) {
    std::vector<pollfd> places(connections_.size() + 1);
    while (!stop.stop_requested()) {
      for (std::size_t i = 0; i < connections_.size(); ++i) {
        const short events = connections_[i]->wanted_events();
        places[i] = {.fd = events == 0 ? -1 : connections_[i]->socket(), .events = events, .revents = 0};
      }
      places.back() = {.fd = wake_, .events = POLLIN, .revents = 0};
      if (::poll(places.data(), places.size(), -1) < 0 && errno != EINTR) return;
      uint64_t wakes = 0;
      if (places.back().revents != 0) [[maybe_unused]]
        const ssize_t count = ::read(wake_, &wakes, sizeof(wakes));
      for (std::size_t i = 0; i < connections_.size(); ++i) {
        if (places[i].revents != 0) connections_[i]->serve(places[i].revents);
      }
    }
  }

  const Meeting meeting_;
  const int wake_;
  std::vector<std::unique_ptr<Connection>> connections_;  // by rank; the own one has no link
  std::mutex mutex_;
  Counts sent_;
  Counts received_;
  std::jthread server_;
};

// It keeps nobody out.
Meeting with_known_identity(Meeting meeting) {
  meeting.identity = pem_from_secret("cohort, of a job without a secret");
  meeting.encrypts = false;
  meeting.machine = "any";
  return meeting;
}

}  // namespace

std::unique_ptr<Transport> make_tcp(const Meeting& meeting) {
  try {
    return std::make_unique<TcpTransport>(meeting.identity ? meeting : with_known_identity(meeting));
  } catch (const Unavailable& error) {
    fail<Unavailable>("[collective] ring: rank ", meeting.rank, " at ", meeting.host,
                      " cannot connect: ", error_text(error));
  }
}

}  // namespace cohort
