// Messages between ranks that are threads, which cost nothing but a copy: what a rank has sent, and how long it would
// have taken between hosts.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collective/process/process_communicator.h"
#include "tests/support/rank_errors.h"

namespace cohort::testing {

// What messages cost between hosts, in seconds. The cores of each end have half of theirs.
struct HostCosts {
  double message = 0;    // of the cores
  double byte = 0;       // of the cores
  double wire_byte = 0;  // of a host's link, one after the other
  double latency = 0;    // of the network
};

// What a rank has sent, and what time it is there.
struct Traffic {
  std::atomic<int64_t> messages = 0;
  std::atomic<int64_t> bytes = 0;
  double now = 0;        // seconds, of a rank without asynchronous operations; 0 where messages cost nothing
  double link_free = 0;  // the time from which on its link can send
};

// The messages on their way between the ranks of all groups.
class Mailboxes {
 public:
  using Way = std::pair<int, Transport::Lane>;  // a sender and a lane

  // What has come for one rank of a group.
  class Box {
   public:
    void put(const Way& way, std::span<const std::byte> bytes, double arrival) {
      const std::lock_guard lock(mutex_);
      come_[{way, sent_[way]++}] = {.bytes = {bytes.begin(), bytes.end()}, .arrival = arrival};
      came_.notify_all();
    }
    // Returns the number of the next message, for take().
    uint64_t expect(const Way& way) {
      const std::lock_guard lock(mutex_);
      return expected_[way]++;
    }
    // Waits for a message and returns when it would have arrived.
    double take(const Way& way, uint64_t number, std::span<std::byte> bytes) {
      std::unique_lock lock(mutex_);
      const auto here = [&] { return come_.contains({way, number}); };
      if (!came_.wait_for(lock, std::chrono::seconds(60), [&] { return here() || aborted_; })) {
        throw std::runtime_error("timed out");
      }
      if (!here()) throw std::runtime_error("aborted");
      const Letter letter = std::move(come_.extract({way, number}).mapped());
      if (letter.bytes.size() != bytes.size()) throw std::runtime_error("a message of another size came");
      std::copy(letter.bytes.begin(), letter.bytes.end(), bytes.begin());
      return letter.arrival;
    }
    void abort() {
      const std::lock_guard lock(mutex_);
      aborted_ = true;
      came_.notify_all();
    }

   private:
    struct Letter {
      std::vector<std::byte> bytes;
      double arrival = 0;
    };

    std::mutex mutex_;
    std::condition_variable came_;
    std::map<std::pair<Way, uint64_t>, Letter> come_;
    std::map<Way, uint64_t> sent_;
    std::map<Way, uint64_t> expected_;
    bool aborted_ = false;
  };

  Box& of(const std::string& group, int rank) {
    const std::lock_guard lock(mutex_);
    return boxes_[{group, rank}];
  }
  void abort() {
    const std::lock_guard lock(mutex_);
    for (auto& [whose, box] : boxes_) box.abort();
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, int>, Box> boxes_;
};

class MailTransport final : public Transport {
 public:
  MailTransport(std::shared_ptr<Mailboxes> boxes, std::string group, int rank, int size, Traffic& traffic,
                const HostCosts& costs)
      : boxes_(std::move(boxes)),
        group_(std::move(group)),
        rank_(rank),
        size_(size),
        own_(boxes_->of(group_, rank)),
        traffic_(traffic),
        costs_(costs) {}

  std::string_view name() const override { return "mail"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<Message> send(int to, std::span<const std::byte> bytes, Lane lane) override {
    ++traffic_.messages;
    traffic_.bytes += static_cast<int64_t>(bytes.size());
    boxes_->of(group_, to).put({rank_, lane}, bytes, leave(static_cast<double>(bytes.size())));
    return std::make_unique<Sent>();
  }
  std::unique_ptr<Message> receive(int from, std::span<std::byte> bytes, Lane lane) override {
    const Mailboxes::Way way{from, lane};
    return std::make_unique<Awaited>(*this, way, own_.expect(way), bytes);
  }
  std::unique_ptr<Transport> subset(std::span<const int> ranks, const std::string& name) override {
    const auto self = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    return std::make_unique<MailTransport>(boxes_, group_ + "/" + name, static_cast<int>(self),
                                           static_cast<int>(ranks.size()), traffic_, costs_);
  }
  void abort() noexcept override { own_.abort(); }

 private:
  struct Sent final : Message {
    void wait() override {}
  };
  class Awaited final : public Message {
   public:
    Awaited(MailTransport& rank, Mailboxes::Way way, uint64_t number, std::span<std::byte> bytes)
        : rank_(rank), way_(way), number_(number), bytes_(bytes) {}
    void wait() override { rank_.arrive(rank_.own_.take(way_, number_, bytes_), static_cast<double>(bytes_.size())); }

   private:
    MailTransport& rank_;
    Mailboxes::Way way_;
    uint64_t number_;
    std::span<std::byte> bytes_;
  };

  // Returns when a message that is sent now arrives.
  double leave(double size) {
    if (costs_.message == 0) return 0;
    traffic_.now += (costs_.message + size * costs_.byte) / 2;
    traffic_.link_free = std::max(traffic_.link_free, traffic_.now) + size * costs_.wire_byte;
    return traffic_.link_free + costs_.latency;
  }
  void arrive(double arrival, double size) {
    if (costs_.message == 0) return;
    traffic_.now = std::max(traffic_.now, arrival) + (costs_.message + size * costs_.byte) / 2;
  }

  std::shared_ptr<Mailboxes> boxes_;
  std::string group_;
  int rank_;
  int size_;
  Mailboxes::Box& own_;
  Traffic& traffic_;
  HostCosts costs_;
};

// Runs fn as each of so many ranks, whose collectives are by the algorithm; rethrows the first failure in rank order.
inline void with_messages(int size, const std::string& algorithm,
                          const std::function<void(ProcessCommunicator&, const Traffic& sent)>& fn,
                          const HostCosts& costs = {}) {
  const auto boxes = std::make_shared<Mailboxes>();
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        Traffic traffic;
        try {
          ProcessCommunicator world(std::make_unique<MailTransport>(boxes, "world", rank, size, traffic, costs),
                                    {.agreement = {.algorithm = algorithm}, .shared_memory = false});
          fn(world, traffic);
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
          boxes->abort();
        }
      });
    }
  }
  rethrow_first(errors);
}

}  // namespace cohort::testing
