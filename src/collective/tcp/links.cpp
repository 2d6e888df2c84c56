#include "collective/tcp/links.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "base/error_text.h"
#include "base/fail.h"
#include "rpc/door.h"

namespace cohort {

namespace {

constexpr uint64_t kMagic = 0x31'6b'6e'69'4c'68'6f'43;  // "CohLink1"
constexpr std::chrono::seconds kProof(10);
constexpr std::chrono::milliseconds kRetryPause(100);
constexpr std::chrono::milliseconds kLeastSilence = std::chrono::seconds(30);
constexpr std::chrono::milliseconds kMostSilence = std::chrono::hours(1);

// What the end that connects says of itself, inside TLS. The other one answers with a byte.
struct Hello {
  uint64_t magic = kMagic;
  uint64_t group = 0;
  uint64_t machine = 0;  // 0: everything is to be encrypted
  int32_t from = 0;
  int32_t to = 0;
};
enum class Reply : uint8_t { kEncrypted = 1, kPlain = 2 };

// FNV-1a. It tells honest ends apart; that they are honest is TLS's matter.
uint64_t hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// The membership notices peers that are lost. The link lasts through outages as long as the group's calls wait for it.
void look_after(int socket, std::chrono::milliseconds timeout) {
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(socket, level, option, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(std::clamp(timeout, kLeastSilence, kMostSilence).count()));
}

std::string address_key(const Meeting& meeting, int rank) {
  return c10::str(meeting.prefix, "address/", rank);
}

class Connecting {
 public:
  explicit Connecting(const Meeting& meeting)
      : meeting_(meeting),
        context_(*meeting.identity),
        group_(hash_of(meeting.prefix)),
        machine_(meeting.machine.empty() ? 0 : hash_of(meeting.machine)),
        door_(meeting.host, context_, {.patience = kProof},
              [this](TlsSocket end, const Deadline& deadline) { enter(end, deadline); }) {}
  Connecting(const Connecting&) = delete;
  Connecting& operator=(const Connecting&) = delete;
  ~Connecting() {
    for (const auto& [rank, link] : came_) ::close(link.socket);
  }

  // Makes the links to lower ranks and waits for those of higher ones.
  std::vector<Link> run() {
    const Deadline deadline(meeting_.timeout);
    if (meeting_.rank < meeting_.size - 1) {
      const auto& address = door_.address();
      meeting_.put(address_key(meeting_, meeting_.rank),
                   std::string(reinterpret_cast<const char*>(&address), door_.address_length()));
    }
    for (int rank = 0; rank < meeting_.rank; ++rank) keep(rank, dial(rank, deadline));
    std::unique_lock lock(mutex_);
    const auto all = [&] { return came_.size() == static_cast<std::size_t>(meeting_.size - 1); };
    if (!came_in_.wait_until(lock, deadline.when(), all)) {
      fail<Unavailable>("[collective] ring: rank ", missing(), " has not connected within ", to_text(deadline.limit()));
    }
    std::vector<Link> links(static_cast<std::size_t>(meeting_.size));
    for (auto& [rank, link] : std::exchange(came_, {})) links[static_cast<std::size_t>(rank)] = std::move(link);
    return links;
  }

 private:
  int missing() const {
    int rank = 0;
    while (rank == meeting_.rank || came_.contains(rank)) ++rank;
    return rank;
  }

  void keep(int rank, Link link) {
    look_after(link.socket, meeting_.timeout);
    const std::lock_guard lock(mutex_);
    if (const auto earlier = came_.find(rank); earlier != came_.end()) ::close(earlier->second.socket);
    came_[rank] = std::move(link);  // the other end has tried again, so an earlier link is of no use to it
    came_in_.notify_all();
  }

  // Connects to the rank. It is tried again, because strangers may crowd at its door.
  Link dial(int rank, const Deadline& deadline) const {
    const std::string told = meeting_.get(address_key(meeting_, rank), deadline.left());
    sockaddr_storage address{};
    if (told.size() > sizeof(address)) fail<DataLoss>("[collective] ring: the address of rank ", rank, " is none");
    std::memcpy(&address, told.data(), told.size());
    for (;;) {
      try {
        return greet(rank, TlsSocket::dial(address, static_cast<socklen_t>(told.size()), context_, Deadline(kProof)));
      } catch (const Unavailable& error) {
        if (deadline.left() < kRetryPause) {
          fail<Unavailable>("[collective] ring: rank ", rank, " cannot be reached: ", error.what());
        }
        std::this_thread::sleep_for(kRetryPause);
      }
    }
  }

  Link greet(int rank, TlsSocket end) const {
    const Deadline deadline(kProof);
    const uint64_t machine = may_be_plain(end) ? machine_ : 0;
    const Hello hello{.group = group_, .machine = machine, .from = meeting_.rank, .to = rank};
    end.write(std::as_bytes(std::span(&hello, 1)), deadline);
    Reply reply{};
    end.read(std::as_writable_bytes(std::span(&reply, 1)), deadline);
    if (reply == Reply::kEncrypted || (reply == Reply::kPlain && machine != 0)) return link_of(end, reply);
    fail<Unavailable>("[security] the other end's answer is none");
  }

  bool may_be_plain(const TlsSocket& end) const { return !meeting_.encrypts || end.is_local(); }

  void enter(TlsSocket& end, const Deadline& deadline) {
    Hello hello;
    end.read(std::as_writable_bytes(std::span(&hello, 1)), deadline);
    const bool ours = hello.magic == kMagic && hello.group == group_ && hello.to == meeting_.rank &&
                      hello.from > meeting_.rank && hello.from < meeting_.size;
    if (!ours) return;
    const bool same = machine_ != 0 && hello.machine == machine_ && may_be_plain(end);
    const Reply reply = same ? Reply::kPlain : Reply::kEncrypted;
    end.write(std::as_bytes(std::span(&reply, 1)), deadline);
    keep(hello.from, link_of(end, reply));
  }

  static Link link_of(TlsSocket& end, Reply reply) {
    auto [socket, ssl] = end.release();
    if (reply == Reply::kPlain) ssl.reset();
    return {.socket = socket, .ssl = std::move(ssl)};
  }

  const Meeting& meeting_;
  const TlsContext context_;
  const uint64_t group_;
  const uint64_t machine_;
  std::mutex mutex_;
  std::condition_variable came_in_;
  std::map<int, Link> came_;
  Door door_;  // it is closed before the others are destroyed, because its threads use them
};

}  // namespace

std::vector<Link> connect_links(const Meeting& meeting) {
  if (meeting.size == 1) return std::vector<Link>(1);
  return Connecting(meeting).run();
}

}  // namespace cohort
