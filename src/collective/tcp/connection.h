// Connection: the messages between this rank and another one, over one link.
//
//   slot (uint64), size (uint64), the bytes, their checksum
//
// The checksum (CRC32C, uint32, of the slot, the size and the bytes) is there without TLS only, which has one of its
// own for each record. A slot names a message in its direction. One that comes before this rank asks for it is kept.
// All numbers are little-endian.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "base/deadline.h"
#include "collective/tcp/links.h"

namespace cohort {

// Thread-safe. Sending and receiving begin at once; what the link cannot take or has not got yet is done by
// serve(), which a thread of the transport calls.
class Connection {
 public:
  // One message under way.
  struct Transfer {
    uint64_t slot = 0;
    std::span<std::byte> bytes;
    std::size_t done = 0;
    bool complete = false;
    bool wanted = true;  // somebody waits for it, or may
  };
  using TransferPtr = std::shared_ptr<Transfer>;

  // `peer` is the other rank in messages.
  Connection(Link link, std::string peer);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  int socket() const { return link_.socket; }

  // Sends as much as the link takes. Returns the transfer.
  TransferPtr send(uint64_t slot, std::span<const std::byte> bytes);
  TransferPtr receive(uint64_t slot, std::span<std::byte> bytes);

  // Waits for the transfer. Throws std::runtime_error: the link has ended, the deadline passed, or end_waits() was
  // called.
  void wait(const Transfer& transfer, const Deadline& deadline);
  // Gives the transfer up; its memory is not used any more.
  void give_up(const TransferPtr& transfer);

  // Returns the events of poll() for which serve() has to be called; 0: the link has ended.
  short wanted_events();
  // Reads and writes what can be without waiting.
  void serve(short events);

  void end_waits();

 private:
  struct Head {
    uint64_t slot = 0;
    uint64_t size = 0;
  };
  struct Outgoing {
    TransferPtr transfer;
    Head head;
    uint32_t sum = 0;        // the checksum of the head and of the bytes before `summed`
    std::size_t summed = 0;  // of the transfer's bytes
    std::size_t head_done = 0;
    std::size_t sum_done = 0;
  };
  struct Early {  // a message that came before it was asked for
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
  };

  std::ptrdiff_t read_some(std::span<std::byte> into);
  std::ptrdiff_t write_some(std::span<const std::byte> from);
  std::ptrdiff_t count_of(int result);
  void write_all();
  bool write_front();
  std::ptrdiff_t write_together(Outgoing& front);
  std::span<const std::byte> rest_of(const Outgoing& message) const;
  void advance(Outgoing& message, std::size_t count) const;
  void read_all();
  bool read_once();
  std::span<std::byte> next_place();
  void took(std::size_t count);
  void begin_message();
  void check_message();
  void finish_message();
  void end(const std::string& why);

  const Link link_;
  const std::size_t sum_size_;  // of the checksum behind each message; 0: TLS has its own
  const std::string peer_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string ended_;  // why the link has ended; empty: it has not
  bool aborted_ = false;
  std::deque<Outgoing> outgoing_;
  std::map<uint64_t, TransferPtr> asked_for_;
  std::map<uint64_t, Early> early_;
  // The message that arrives.
  Head head_;
  std::size_t head_done_ = 0;
  TransferPtr arriving_;  // it fills the bytes of who asked for it, or own ones
  Early own_;
  uint32_t sum_ = 0;       // the checksum of what has come of it
  uint32_t told_sum_ = 0;  // the one that stands behind it
  std::size_t told_sum_done_ = 0;
};

}  // namespace cohort
