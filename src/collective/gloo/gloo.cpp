#include "collective/gloo/gloo.h"

#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error_text.h"
#include "base/fail.h"
#include "base/libtorch_compat.h"

namespace cohort {

namespace {

// Gloo may hold on to it for as long as its context lives.
class KeyValues final : public gloo::rendezvous::Store {
 public:
  explicit KeyValues(Meeting meeting) : meeting_(std::move(meeting)) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    meeting_.put(meeting_.prefix + key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = meeting_.get(meeting_.prefix + key, meeting_.timeout);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, meeting_.timeout); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    for (const std::string& key : keys) (void)meeting_.get(meeting_.prefix + key, timeout);
  }

 private:
  Meeting meeting_;
};

// Each message has a buffer of Gloo's and a slot: the lane, and the number of the message in its lane and direction.
class GlooTransport final : public Transport {
 public:
  GlooTransport(std::shared_ptr<gloo::Context> context, Meeting meeting)
      : context_(std::move(context)), meeting_(std::move(meeting)) {}

  std::string_view name() const override { return "gloo"; }
  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }

  std::unique_ptr<Message> send(int to, std::span<const std::byte> bytes, Lane lane) override {
    auto message = std::make_unique<Buffer>(*this, const_cast<std::byte*>(bytes.data()), bytes.size(), /*sends=*/true);
    message->buffer().send(to, next_slot(sent_, to, lane));
    return message;
  }

  std::unique_ptr<Message> receive(int from, std::span<std::byte> bytes, Lane lane) override {
    auto message = std::make_unique<Buffer>(*this, bytes.data(), bytes.size(), /*sends=*/false);
    message->buffer().recv(from, next_slot(received_, from, lane));
    return message;
  }

  std::unique_ptr<Transport> subset(std::span<const int> ranks, const std::string& name) override {
    Meeting meeting = meeting_;
    meeting.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
    meeting.size = static_cast<int>(ranks.size());
    meeting.prefix += name + "/";
    return make_gloo(meeting);
  }

  void abort() noexcept override {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    for (Buffer* const message : under_way_) message->end_wait();
  }

 private:
  using Counts = std::map<std::pair<int, Lane>, uint64_t>;

  class Buffer final : public Message {
   public:
    Buffer(GlooTransport& transport, void* data, std::size_t bytes, bool sends)
        : transport_(transport), buffer_(transport.context_->createUnboundBuffer(data, bytes)), sends_(sends) {
      const std::lock_guard lock(transport.mutex_);
      transport.under_way_.push_back(this);
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() override {
      const std::lock_guard lock(transport_.mutex_);
      std::erase(transport_.under_way_, this);
    }

    gloo::transport::UnboundBuffer& buffer() { return *buffer_; }

    void wait() override {
      const auto timeout = transport_.context_->getTimeout();
      if (transport_.aborted_) throw std::runtime_error("aborted");
      const bool came = sends_ ? buffer_->waitSend(timeout) : buffer_->waitRecv(timeout);
      if (!came) throw std::runtime_error("aborted");
    }

    void end_wait() { sends_ ? buffer_->abortWaitSend() : buffer_->abortWaitRecv(); }

   private:
    GlooTransport& transport_;
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
    bool sends_;
  };

  uint64_t next_slot(Counts& counts, int peer, Lane lane) {
    constexpr int kCountBits = 40;
    const std::lock_guard lock(mutex_);
    return (uint64_t{lane} << kCountBits) | counts[{peer, lane}]++;
  }

  std::shared_ptr<gloo::Context> context_;
  Meeting meeting_;
  std::mutex mutex_;
  Counts sent_;
  Counts received_;
  std::vector<Buffer*> under_way_;
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

// Waits until all ranks have all their connections. One that is connected and leaves at once would be gone while
// another still waits for its connection to it, for which Gloo has no other word than that it cannot connect.
void meet_all(const Meeting& meeting) {
  const std::string key = meeting.prefix + "connected";
  if (meeting.rank != 0) {
    meeting.put(c10::str(key, "/", meeting.rank), "yes");
    (void)meeting.get(key, meeting.timeout);
    return;
  }
  for (int rank = 1; rank < meeting.size; ++rank) (void)meeting.get(c10::str(key, "/", rank), meeting.timeout);
  if (meeting.size > 1) meeting.put(key, "yes");
}

}  // namespace

std::unique_ptr<Transport> make_gloo(const Meeting& meeting) {
  try {
    std::shared_ptr<gloo::transport::Device> device = make_device(meeting.host);
    auto context = std::make_shared<gloo::rendezvous::Context>(meeting.rank, meeting.size);
    context->setTimeout(meeting.timeout);
    compat::connect_full_mesh(*context, std::make_shared<KeyValues>(meeting), device);
    meet_all(meeting);
    return std::make_unique<GlooTransport>(std::move(context), meeting);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail<Unavailable>("[collective] gloo: rank ", meeting.rank, " at ", meeting.host,
                      " cannot connect: ", error_text(error));
  }
}

}  // namespace cohort
