// EtcdStream: one call of etcd. A call that has one request and one answer is, on the wire, a stream with one message
// in each direction; so there is one class for all.
#pragma once

#include <google/protobuf/message_lite.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/client_callback.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "rpc/grpc_channel.h"

namespace cohort {

struct EtcdCall {
  std::string method;  // "/etcdserverpb.KV/Range"
  std::string token;   // of Authenticate; empty: none
  // The longest time of the call; nothing: it lasts until it is cancelled.
  std::optional<std::chrono::milliseconds> limit;
};

// The constructor begins the call. The destructor cancels it and waits for its end.
class EtcdStream final : private grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // The function that gets each answer, on a thread of gRPC, so it must not wait.
  using Seen = std::function<void(const grpc::ByteBuffer& answer)>;

  // Sends the request, and none after it where the call has a limit. The channel is kept.
  EtcdStream(std::shared_ptr<Channel> channel, const EtcdCall& call, const google::protobuf::MessageLite& request,
             Seen seen);
  EtcdStream(const EtcdStream&) = delete;
  EtcdStream& operator=(const EtcdStream&) = delete;
  ~EtcdStream() override;

  // Ends the call with CANCELLED, if it has not ended. Any thread.
  void cancel() { context_.TryCancel(); }
  // Waits for the end of the call, which a limit or cancel() brings, and returns how it ended.
  grpc::Status wait();

 private:
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  const std::shared_ptr<Channel> channel_;
  const Seen seen_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer answer_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::optional<grpc::Status> status_;
};

// Reads the message. Returns whether the bytes are one.
bool read_message(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite& message);

}  // namespace cohort
