#include "collective/gloo/gloo.h"

#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <sched.h>

#include <atomic>
#include <csignal>
#include <deque>
#include <mutex>

#include "base/error_text.h"
#include "base/fail.h"
#include "base/libtorch_compat.h"

namespace cohort {

namespace {

// Gloo may hold on to it for as long as its context lives.
class KeyValues final : public gloo::rendezvous::Store {
 public:
  explicit KeyValues(GlooOptions options) : options_(std::move(options)) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    options_.put(options_.prefix + key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = options_.get(options_.prefix + key, options_.timeout);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, options_.timeout); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    for (const std::string& key : keys) (void)options_.get(options_.prefix + key, timeout);
  }

 private:
  GlooOptions options_;
};

// Each message has a buffer of Gloo's and a slot, which counts the messages of its direction.
class GlooWire final : public Wire {
 public:
  explicit GlooWire(std::shared_ptr<gloo::Context> context)
      : context_(std::move(context)),
        sent_(static_cast<std::size_t>(context_->size)),
        received_(static_cast<std::size_t>(context_->size)) {}

  std::string_view name() const override { return "gloo"; }
  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }

  Ticket send(int to, std::span<const std::byte> bytes) override {
    Message& message = add(const_cast<std::byte*>(bytes.data()), bytes.size(), /*sends=*/true);
    message.buffer->send(to, sent_[static_cast<std::size_t>(to)]++);
    return messages_.size() - 1;
  }

  Ticket receive(int from, std::span<std::byte> bytes) override {
    Message& message = add(bytes.data(), bytes.size(), /*sends=*/false);
    message.buffer->recv(from, received_[static_cast<std::size_t>(from)]++);
    return messages_.size() - 1;
  }

  void wait(Ticket ticket) override {
    Message& message = messages_[ticket];
    if (aborted_) throw std::runtime_error("aborted");
    gloo::transport::UnboundBuffer& buffer = *message.buffer;
    const bool came = message.sends ? buffer.waitSend(context_->getTimeout()) : buffer.waitRecv(context_->getTimeout());
    if (!came) throw std::runtime_error("aborted");
    ++done_;
    if (done_ == messages_.size()) drop();
  }

  void drop() noexcept override {
    const std::lock_guard lock(mutex_);
    messages_.clear();
    done_ = 0;
  }

  void abort() noexcept override {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    for (const Message& message : messages_) {
      message.sends ? message.buffer->abortWaitSend() : message.buffer->abortWaitRecv();
    }
  }

 private:
  struct Message {
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
    bool sends = false;
  };

  Message& add(void* data, std::size_t bytes, bool sends) {
    const std::lock_guard lock(mutex_);
    return messages_.emplace_back(Message{.buffer = context_->createUnboundBuffer(data, bytes), .sends = sends});
  }

  std::shared_ptr<gloo::Context> context_;
  std::vector<uint64_t> sent_;
  std::vector<uint64_t> received_;
  std::mutex mutex_;              // of messages_, against abort()
  std::deque<Message> messages_;  // by ticket; all are done or dropped before the tickets start anew
  std::size_t done_ = 0;
  std::atomic<bool> aborted_ = false;
};

// Threads that are made while it lives do not push aside a thread that runs when they wake up. Gloo's thread polls in
// vain while a sender holds the lock of a connection: should it have taken that sender's core, it does so until its
// time slice is over, milliseconds later.
class PatientThreads {
 public:
  PatientThreads() : before_(::sched_getscheduler(0)) { set(SCHED_BATCH); }
  PatientThreads(const PatientThreads&) = delete;
  PatientThreads& operator=(const PatientThreads&) = delete;
  ~PatientThreads() { set(before_); }

 private:
  void set(int policy) const {
    if (before_ != SCHED_OTHER) return;  // the user's own choice
    const sched_param normal{};
    ::sched_setscheduler(0, policy, &normal);
  }

  int before_;
};

// Gloo writes to connections that the other side may have closed, which ends a program that has not said otherwise.
void survive_closed_connections() {
  struct sigaction now {};
  if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
}

std::shared_ptr<gloo::transport::Device> make_device(const std::string& host) {
  survive_closed_connections();
  const PatientThreads patient;
  gloo::transport::tcp::attr where;
  where.hostname = host;
  return gloo::transport::tcp::CreateDevice(where);
}

}  // namespace

std::unique_ptr<Wire> make_gloo(const GlooOptions& options) {
  try {
    std::shared_ptr<gloo::transport::Device> device = make_device(options.host);
    auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.size);
    context->setTimeout(options.timeout);
    compat::connect_full_mesh(*context, std::make_shared<KeyValues>(options), device);
    return std::make_unique<GlooWire>(std::move(context));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail<Unavailable>("[collective] gloo: rank ", options.rank, " at ", options.host,
                      " cannot connect: ", error_text(error));
  }
}

}  // namespace cohort
