// A back end between processes in its smallest form, which docs/extending.md takes as its example: messages over pairs
// of sockets, between ranks that are threads. Each peer has a thread that reads what it sends, and one that writes.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <vector>

#include "collective/transport.h"

namespace cohort::testing {

// The place where the ranks of all groups find their ends of the pairs.
class PipeMesh {
 public:
  // Returns this rank's end of the pair that connects it with the peer in a group.
  int take_end(const std::string& group, int rank, int peer) {
    const std::lock_guard lock(mutex_);
    const auto [pair, is_new] = pairs_.try_emplace({group, std::min(rank, peer), std::max(rank, peer)});
    int* const ends = pair->second.ends;
    if (is_new && ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) throw std::runtime_error(std::strerror(errno));
    return ends[rank < peer ? 0 : 1];
  }

 private:
  struct Pair {
    int ends[2];
  };
  std::mutex mutex_;
  std::map<std::tuple<std::string, int, int>, Pair> pairs_;
};

// One rank's connection with one peer.
class Pipe {
 public:
  Pipe(int socket, std::chrono::milliseconds timeout)
      : socket_(socket), timeout_(timeout), reader_([this] { read_all(); }), writer_([this] { write_all(); }) {}
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  // Lets what was sent leave; drops what has not come by now.
  ~Pipe() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    writer_.join();
    ::shutdown(socket_, SHUT_RDWR);
    reader_.join();
    ::close(socket_);
  }

  void send(std::span<const std::byte> bytes, Transport::Lane lane) {
    const std::lock_guard lock(mutex_);
    std::vector<std::byte> frame(sizeof(Header) + bytes.size());
    const Header header{.lane = lane, .size = bytes.size()};
    std::memcpy(frame.data(), &header, sizeof header);
    std::copy(bytes.begin(), bytes.end(), frame.begin() + sizeof header);
    outgoing_.push_back(std::move(frame));
    changed_.notify_all();
  }

  // Returns the number of the next message of a lane, for take().
  uint64_t expect(Transport::Lane lane) {
    const std::lock_guard lock(mutex_);
    return expected_[lane]++;
  }

  // Waits for a message of a lane.
  void take(Transport::Lane lane, uint64_t number, std::span<std::byte> bytes) {
    std::unique_lock lock(mutex_);
    const auto came = [&] { return incoming_.count({lane, number}) > 0; };
    if (!changed_.wait_for(lock, timeout_, [&] { return came() || !error_.empty(); })) {
      throw std::runtime_error("timed out");
    }
    if (!came()) throw std::runtime_error(error_);
    const std::vector<std::byte> frame = std::move(incoming_.extract({lane, number}).mapped());
    if (frame.size() != bytes.size()) throw std::runtime_error("a message of another size came");
    std::copy(frame.begin(), frame.end(), bytes.begin());
  }

  void fail(const std::string& error) {
    const std::lock_guard lock(mutex_);
    if (error_.empty()) error_ = error;
    changed_.notify_all();
  }

 private:
  struct Header {
    uint64_t lane;
    uint64_t size;
  };

  void read_all() {
    std::map<uint64_t, uint64_t> count;
    for (Header header{}; read_exactly(&header, sizeof header);) {
      std::vector<std::byte> frame(header.size);
      if (!read_exactly(frame.data(), frame.size())) break;
      const std::lock_guard lock(mutex_);
      incoming_[{static_cast<Transport::Lane>(header.lane), count[header.lane]++}] = std::move(frame);
      changed_.notify_all();
    }
    fail("the connection is closed");
  }

  bool read_exactly(void* to, std::size_t size) const {
    return size == 0 || ::recv(socket_, to, size, MSG_WAITALL) == static_cast<ssize_t>(size);
  }

  void write_all() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return closing_ || !outgoing_.empty(); });
      if (outgoing_.empty()) return;
      const std::vector<std::byte> frame = std::move(outgoing_.front());
      outgoing_.pop_front();
      lock.unlock();
      std::size_t at = 0;
      while (at < frame.size()) {
        const ssize_t written = ::send(socket_, frame.data() + at, frame.size() - at, MSG_NOSIGNAL);
        if (written < 0) break;  // the peer is gone, which the reader says
        at += static_cast<std::size_t>(written);
      }
      lock.lock();
    }
  }

  int socket_;
  std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::vector<std::byte>> outgoing_;
  std::map<Transport::Lane, uint64_t> expected_;
  std::map<std::pair<Transport::Lane, uint64_t>, std::vector<std::byte>> incoming_;
  std::string error_;
  bool closing_ = false;
  std::thread reader_;
  std::thread writer_;
};

class PipeTransport final : public Transport {
 public:
  PipeTransport(std::shared_ptr<PipeMesh> mesh, std::string group, int rank, int size,
                std::chrono::milliseconds timeout)
      : mesh_(std::move(mesh)), group_(std::move(group)), rank_(rank), size_(size), timeout_(timeout) {
    for (int peer = 0; peer < size; ++peer) {
      if (peer != rank) pipes_.try_emplace(peer, mesh_->take_end(group_, rank, peer), timeout);
    }
  }

  std::string_view name() const override { return "pipes"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<Message> send(int to, std::span<const std::byte> bytes, Lane lane) override {
    pipes_.at(to).send(bytes, lane);
    return std::make_unique<Sent>();
  }
  std::unique_ptr<Message> receive(int from, std::span<std::byte> bytes, Lane lane) override {
    Pipe& pipe = pipes_.at(from);
    return std::make_unique<Awaited>(pipe, lane, pipe.expect(lane), bytes);
  }
  std::unique_ptr<Transport> subset(std::span<const int> ranks, const std::string& name) override {
    const auto self = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    return std::make_unique<PipeTransport>(mesh_, group_ + "/" + name, static_cast<int>(self),
                                           static_cast<int>(ranks.size()), timeout_);
  }
  void abort() noexcept override {
    for (auto& [peer, pipe] : pipes_) pipe.fail("aborted");
  }

 private:
  // A message that was copied when it was sent.
  struct Sent final : Message {
    void wait() override {}
  };
  class Awaited final : public Message {
   public:
    Awaited(Pipe& pipe, Lane lane, uint64_t number, std::span<std::byte> bytes)
        : pipe_(pipe), lane_(lane), number_(number), bytes_(bytes) {}
    void wait() override { pipe_.take(lane_, number_, bytes_); }

   private:
    Pipe& pipe_;
    Lane lane_;
    uint64_t number_;
    std::span<std::byte> bytes_;
  };

  std::shared_ptr<PipeMesh> mesh_;
  std::string group_;
  int rank_;
  int size_;
  std::chrono::milliseconds timeout_;
  std::map<int, Pipe> pipes_;  // by peer
};

}  // namespace cohort::testing
