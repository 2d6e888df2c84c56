#include "collective/tcp/connection.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <stdexcept>

#include "base/fail.h"

namespace cohort {

namespace {

constexpr std::ptrdiff_t kLater = -1;  // the link can take or give nothing now
constexpr uint64_t kLongest = uint64_t{1} << 40;
constexpr std::size_t kTogether = std::size_t{16} << 10;  // a head and bytes so few are sent at once
constexpr int kReadsAtOnce = 64;                          // then others have their turn

}  // namespace

Connection::Connection(Link link, std::string peer) : link_(std::move(link)), peer_(std::move(peer)) {}

Connection::~Connection() {
  if (link_.socket < 0) return;
  if (link_.ssl) SSL_shutdown(link_.ssl.get());  // tells the other end, and does not wait for its answer
  ::close(link_.socket);
}

// -- The link, without waiting. The caller holds the lock.

// Returns the count, or kLater; an end of the link is noted and counts as kLater.
std::ptrdiff_t Connection::count_of(int result) {
  if (result > 0) return result;
  const int error = SSL_get_error(link_.ssl.get(), result);
  if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) end("it has ended the connection");
  return kLater;
}

std::ptrdiff_t Connection::read_some(std::span<std::byte> into) {
  if (link_.ssl) {
    ERR_clear_error();
    return count_of(
        SSL_read(link_.ssl.get(), into.data(), static_cast<int>(std::min<std::size_t>(into.size(), INT_MAX))));
  }
  const ssize_t count = ::recv(link_.socket, into.data(), into.size(), MSG_DONTWAIT);
  if (count > 0) return count;
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return kLater;
  end(count == 0 ? "it has ended the connection" : std::strerror(errno));
  return kLater;
}

std::ptrdiff_t Connection::write_some(std::span<const std::byte> from) {
  if (link_.ssl) {
    ERR_clear_error();
    return count_of(
        SSL_write(link_.ssl.get(), from.data(), static_cast<int>(std::min<std::size_t>(from.size(), INT_MAX))));
  }
  const ssize_t count = ::send(link_.socket, from.data(), from.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (count >= 0) return count;
  if (errno != EAGAIN && errno != EINTR) end(std::strerror(errno));
  return kLater;
}

void Connection::end(const std::string& why) {
  if (ended_.empty()) ended_ = peer_ + ": " + why;
  changed_.notify_all();
}

// -- Sending.

Connection::TransferPtr Connection::send(uint64_t slot, std::span<const std::byte> bytes) {
  auto transfer = std::make_shared<Transfer>();
  transfer->slot = slot;
  transfer->bytes = {const_cast<std::byte*>(bytes.data()), bytes.size()};  // it is only read
  const std::lock_guard lock(mutex_);
  outgoing_.push_back({.transfer = transfer, .head = {.slot = slot, .size = bytes.size()}});
  if (outgoing_.size() == 1) write_all();
  return transfer;
}

void Connection::write_all() {
  while (ended_.empty() && !outgoing_.empty() && write_front()) outgoing_.pop_front();
}

// Returns whether the first message has gone.
bool Connection::write_front() {
  Outgoing& front = outgoing_.front();
  Transfer& transfer = *front.transfer;
  if (front.head_done == 0 && transfer.bytes.size() <= kTogether) {
    std::array<std::byte, sizeof(Head) + kTogether> together{};
    std::memcpy(together.data(), &front.head, sizeof(Head));
    std::copy(transfer.bytes.begin(), transfer.bytes.end(), together.begin() + sizeof(Head));
    const std::ptrdiff_t count = write_some(std::span(together).first(sizeof(Head) + transfer.bytes.size()));
    if (count == kLater) return false;
    front.head_done = std::min(static_cast<std::size_t>(count), sizeof(Head));
    transfer.done = static_cast<std::size_t>(count) - front.head_done;
  }
  while (front.head_done < sizeof(Head) || transfer.done < transfer.bytes.size()) {
    const bool in_head = front.head_done < sizeof(Head);
    const std::span<const std::byte> rest = in_head ? std::as_bytes(std::span(&front.head, 1)).subspan(front.head_done)
                                                    : transfer.bytes.subspan(transfer.done);
    const std::ptrdiff_t count = write_some(rest);
    if (count == kLater) return false;
    (in_head ? front.head_done : transfer.done) += static_cast<std::size_t>(count);
  }
  transfer.complete = true;
  changed_.notify_all();
  return true;
}

// -- Receiving.

Connection::TransferPtr Connection::receive(uint64_t slot, std::span<std::byte> bytes) {
  auto transfer = std::make_shared<Transfer>();
  transfer->slot = slot;
  transfer->bytes = bytes;
  const std::lock_guard lock(mutex_);
  const auto fits = [&](std::size_t size) {
    if (size != bytes.size()) end(c10::str("a message of ", size, " bytes came, wanted ", bytes.size()));
    return size == bytes.size();
  };
  if (const auto found = early_.find(slot); found != early_.end()) {
    if (!fits(found->second.size)) return transfer;
    std::copy_n(found->second.bytes.get(), bytes.size(), bytes.begin());
    transfer->complete = true;
    early_.erase(found);
  } else if (arriving_ && arriving_->slot == slot) {
    if (!fits(head_.size)) return transfer;
    std::copy_n(own_.bytes.get(), arriving_->done, bytes.begin());
    transfer->done = arriving_->done;
    arriving_ = transfer;
    own_ = {};
  } else {
    asked_for_[slot] = transfer;
  }
  return transfer;
}

void Connection::read_all() {
  for (int i = 0; i < kReadsAtOnce || (link_.ssl && SSL_pending(link_.ssl.get()) > 0); ++i) {
    if (!ended_.empty() || !read_once()) return;
  }
}

// Returns whether something came.
bool Connection::read_once() {
  if (!arriving_) {
    const auto rest = std::as_writable_bytes(std::span(&head_, 1)).subspan(head_done_);
    const std::ptrdiff_t count = read_some(rest);
    if (count == kLater) return false;
    head_done_ += static_cast<std::size_t>(count);
    if (head_done_ == sizeof(Head)) begin_message();
    return true;
  }
  const std::ptrdiff_t count = read_some(arriving_->bytes.subspan(arriving_->done));
  if (count == kLater) return false;
  arriving_->done += static_cast<std::size_t>(count);
  if (arriving_->done == arriving_->bytes.size()) finish_message();
  return true;
}

void Connection::begin_message() {
  head_done_ = 0;
  const auto found = asked_for_.find(head_.slot);
  if (found != asked_for_.end() && found->second->bytes.size() != head_.size) {
    return end(c10::str("a message of ", head_.size, " bytes came, wanted ", found->second->bytes.size()));
  }
  if (head_.size > kLongest) return end(c10::str("a message of ", head_.size, " bytes came"));
  if (found != asked_for_.end()) {
    arriving_ = found->second;
    asked_for_.erase(found);
  } else {
    own_ = {.bytes = std::unique_ptr<std::byte[]>(new std::byte[head_.size]), .size = head_.size};
    arriving_ = std::make_shared<Transfer>();
    arriving_->slot = head_.slot;
    arriving_->bytes = {own_.bytes.get(), own_.size};
  }
  if (head_.size == 0) finish_message();
}

void Connection::finish_message() {
  arriving_->complete = true;
  if (own_.bytes) early_[arriving_->slot] = std::move(own_);
  own_ = {};
  arriving_.reset();
  changed_.notify_all();
}

// -- Waiting.

void Connection::wait(const Transfer& transfer, const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  const auto over = [&] { return transfer.complete || aborted_ || !ended_.empty(); };
  if (!changed_.wait_until(lock, deadline.when(), over)) {
    throw std::runtime_error(peer_ + ": nothing came within " + to_text(deadline.limit()));
  }
  if (aborted_) throw std::runtime_error("aborted");
  if (!transfer.complete) throw std::runtime_error(ended_);
}

void Connection::give_up(const TransferPtr& transfer) {
  const std::lock_guard lock(mutex_);
  if (transfer->complete) return;
  asked_for_.erase(transfer->slot);
  const auto queued =
      std::find_if(outgoing_.begin(), outgoing_.end(), [&](const Outgoing& each) { return each.transfer == transfer; });
  // TLS has a part of the first message even if it has not said so yet.
  const bool begun = queued == outgoing_.begin() && link_.ssl;
  const bool half_sent = queued != outgoing_.end() && (queued->head_done > 0 || begun);
  if (half_sent || arriving_ == transfer) end("a message was given up in its middle");
  if (queued != outgoing_.end()) outgoing_.erase(queued);
  if (arriving_ == transfer) arriving_.reset();
}

short Connection::wanted_events() {
  const std::lock_guard lock(mutex_);
  if (!ended_.empty() || link_.socket < 0) return 0;
  return static_cast<short>(outgoing_.empty() ? POLLIN : POLLIN | POLLOUT);
}

void Connection::serve(short events) {
  const std::lock_guard lock(mutex_);
  if ((events & POLLOUT) != 0) write_all();
  if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) read_all();
}

void Connection::end_waits() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  changed_.notify_all();
}

}  // namespace cohort
