// EtcdClient: calls an etcd cluster. A call goes to one member, and to the next one when that does not answer.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "cohort/cluster/security.h"
#include "etcd.pb.h"
#include "wings/etcd/rpc/etcd_address.h"

namespace cohort {

class Channel;
class EtcdStream;

// Thread-safe. Calls throw Unavailable or DeadlineExceeded if no member has answered in time, and Cancelled after
// close(). InvalidArgument: the request is too long, or the password is wrong. FailedPrecondition: the user may not do
// it, or etcd has no room. NotFound: the lease has ended.
class EtcdClient {
 public:
  // InvalidArgument: `address` says TLS, and the security has no certificates. FailedPrecondition: it says no TLS, and
  // a member is on another machine, which `allow_insecure` allows.
  EtcdClient(EtcdAddress address, const SecurityOptions& security, bool allow_insecure = false);
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;
  ~EtcdClient();

  // Return the answer, within the limit. A request may be done twice, when the first answer is lost.
  etcd::RangeResponse range(const etcd::RangeRequest& request, std::chrono::milliseconds limit);
  etcd::TxnResponse transact(const etcd::TxnRequest& request, std::chrono::milliseconds limit);
  // Grants a lease of so many seconds. InvalidArgument: etcd grants longer ones only.
  int64_t grant(int64_t seconds, std::chrono::milliseconds limit);
  void revoke(int64_t lease, std::chrono::milliseconds limit);
  // Renews the lease. NotFound: it has ended.
  void keep_alive(int64_t lease, std::chrono::milliseconds limit);

  // Watches until the stream ends: by its member, by a request to stop, or because another call has gone on to another
  // member. `seen` gets each answer, on a thread of gRPC. Cancelled: this is closed.
  void watch(const etcd::WatchCreateRequest& request, const std::function<void(const etcd::WatchResponse&)>& seen,
             const std::stop_token& stop = {});

  // Ends the calls under way, and all later ones at once, with Cancelled. Any thread.
  void close();

  // Returns the name of the cluster in messages: "etcd at host:port, host:port".
  std::string name() const { return address_.shown(); }

 private:
  // The member that calls go to now.
  struct Place {
    std::size_t index = 0;
    std::shared_ptr<Channel> channel;
  };
  // The end of one attempt: gRPC's code and message.
  struct End {
    int code = 0;
    std::string message;
  };

  Place place();
  void leave(std::size_t index);
  std::string token(std::chrono::milliseconds limit);
  End attempt(const Place& place, const std::string& method, const google::protobuf::MessageLite& request,
              google::protobuf::MessageLite& answer, std::chrono::milliseconds limit);
  void call(const std::string& method, const google::protobuf::MessageLite& request,
            google::protobuf::MessageLite& answer, std::chrono::milliseconds limit);
  bool note(EtcdStream* stream);
  void forget(EtcdStream* stream);
  [[noreturn]] void raise(const End& end, const std::string& method) const;

  const EtcdAddress address_;
  SecurityOptions security_;
  mutable std::mutex mutex_;
  std::size_t index_ = 0;
  std::shared_ptr<Channel> channel_;
  std::string token_;
  std::set<EtcdStream*> streams_;  // the calls under way
  std::set<EtcdStream*> watches_;  // those of them that have no limit
  bool closed_ = false;
};

// Returns the end of the range of all keys that begin with the prefix.
std::string end_of_prefix(std::string prefix);

}  // namespace cohort
