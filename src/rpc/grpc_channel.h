// Channel: the ways to a server that gRPC has.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "rpc/grpc_use.h"

namespace cohort {

// Takes calls over the network, or over the local socket of a server of this machine and user, if there is one now.
// Each call goes the way that is there when it begins. Thread-safe.
class Channel {
 public:
  explicit Channel(std::shared_ptr<grpc::Channel> network);
  // `file` is the local socket, to which `local` leads.
  Channel(std::shared_ptr<grpc::Channel> network, std::shared_ptr<grpc::Channel> local, std::string file);

  // Returns the way of the next call.
  grpc::GenericStub& stub();

 private:
  using Clock = std::chrono::steady_clock;

  bool local_is_there();

  const GrpcUse use_;  // destroyed after the channels
  const std::shared_ptr<grpc::Channel> network_;
  const std::shared_ptr<grpc::Channel> local_;  // null: there is the network only
  const std::string file_;
  grpc::GenericStub network_stub_;
  std::optional<grpc::GenericStub> local_stub_;
  std::atomic<Clock::rep> asked_;  // when the file was looked at and nobody listened
};

}  // namespace cohort
