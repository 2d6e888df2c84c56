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

#include "base/crc32c.h"
#include "base/fail.h"

namespace cohort {

namespace {

constexpr std::ptrdiff_t kLater = -1;  // the link can take or give nothing now
constexpr uint64_t kLongest = uint64_t{1} << 40;
constexpr std::size_t kTogether = std::size_t{16} << 10;  // a head and bytes so few are sent at once
constexpr int kReadsAtOnce = 64;                          // then others have their turn

}  // namespace

Connection::Connection(Link link, std::string peer)
    : link_(std::move(link)), sum_size_(link_.ssl ? 0 : sizeof(uint32_t)), peer_(std::move(peer)) {}

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
  Outgoing message{.transfer = transfer, .head = {.slot = slot, .size = bytes.size()}};
  if (sum_size_ > 0) message.sum = crc32c(std::as_bytes(std::span(&message.head, 1)));
  outgoing_.push_back(std::move(message));
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
  const bool few = front.head_done == 0 && transfer.bytes.size() <= kTogether;
  for (auto rest = rest_of(front); !rest.empty(); rest = rest_of(front)) {
    const std::ptrdiff_t count = few && front.head_done == 0 ? write_together(front) : write_some(rest);
    if (count == kLater) return false;
    advance(front, static_cast<std::size_t>(count));
  }
  transfer.complete = true;
  changed_.notify_all();
  return true;
}

// Writes the head, the bytes and the checksum in one piece.
std::ptrdiff_t Connection::write_together(Outgoing& front) {
  const std::span<const std::byte> bytes = front.transfer->bytes;
  std::array<std::byte, sizeof(Head) + kTogether + sizeof(uint32_t)> together{};
  std::memcpy(together.data(), &front.head, sizeof(Head));
  std::copy(bytes.begin(), bytes.end(), together.begin() + sizeof(Head));
  if (sum_size_ > 0 && front.summed < bytes.size()) front.sum = crc32c(bytes, front.sum);
  front.summed = bytes.size();
  std::memcpy(together.data() + sizeof(Head) + bytes.size(), &front.sum, sum_size_);
  return write_some(std::span(together).first(sizeof(Head) + bytes.size() + sum_size_));
}

// Returns what is to be written next: the rest of the head, of the bytes or of the checksum.
std::span<const std::byte> Connection::rest_of(const Outgoing& message) const {
  const Transfer& transfer = *message.transfer;
  if (message.head_done < sizeof(Head)) {
    return std::as_bytes(std::span(&message.head, 1)).subspan(message.head_done);
  }
  if (transfer.done < transfer.bytes.size()) return transfer.bytes.subspan(transfer.done);
  return std::as_bytes(std::span(&message.sum, 1)).first(sum_size_).subspan(message.sum_done);
}

// Notes that so many more bytes of the message have gone.
void Connection::advance(Outgoing& message, std::size_t count) const {
  Transfer& transfer = *message.transfer;
  const auto take = [&](std::size_t& done, std::size_t size) {
    const std::size_t part = std::min(count, size - done);
    done += part;
    count -= part;
  };
  take(message.head_done, sizeof(Head));
  take(transfer.done, transfer.bytes.size());
  take(message.sum_done, sum_size_);
  if (sum_size_ == 0 || transfer.done <= message.summed) return;
  message.sum = crc32c(transfer.bytes.first(transfer.done).subspan(message.summed), message.sum);
  message.summed = transfer.done;
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
  const std::ptrdiff_t count = read_some(next_place());
  if (count == kLater) return false;
  took(static_cast<std::size_t>(count));
  return true;
}

// Returns where the next bytes belong: to the head, the message or the checksum behind it.
std::span<std::byte> Connection::next_place() {
  if (!arriving_) return std::as_writable_bytes(std::span(&head_, 1)).subspan(head_done_);
  if (arriving_->done < arriving_->bytes.size()) return arriving_->bytes.subspan(arriving_->done);
  return std::as_writable_bytes(std::span(&told_sum_, 1)).first(sum_size_).subspan(told_sum_done_);
}

// Notes that so many bytes have come to next_place().
void Connection::took(std::size_t count) {
  if (!arriving_) {
    head_done_ += count;
    if (head_done_ == sizeof(Head)) begin_message();
    return;
  }
  const std::size_t size = arriving_->bytes.size();
  if (arriving_->done < size) {
    if (sum_size_ > 0) sum_ = crc32c(arriving_->bytes.subspan(arriving_->done, count), sum_);
    arriving_->done += count;
  } else {
    told_sum_done_ += count;
  }
  if (arriving_->done == size && told_sum_done_ == sum_size_) check_message();
}

void Connection::check_message() {
  if (sum_size_ > 0 && sum_ != told_sum_) {
    return end(c10::str("a message of ", head_.size, " bytes was changed on the way: its checksum is ", sum_,
                        ", wanted ", told_sum_));
  }
  finish_message();
}

void Connection::begin_message() {
  head_done_ = 0;
  told_sum_done_ = 0;
  sum_ = crc32c(std::as_bytes(std::span(&head_, 1)));
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
  if (head_.size + sum_size_ == 0) finish_message();
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
