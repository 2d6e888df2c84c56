#include "wings/etcd/rpc/etcd_stream.h"

#include <vector>

namespace cohort {

EtcdStream::EtcdStream(std::shared_ptr<Channel> channel, const EtcdCall& call,
                       const google::protobuf::MessageLite& request, Seen seen)
    : channel_(std::move(channel)), seen_(std::move(seen)) {
  const grpc::Slice bytes(request.SerializeAsString());
  request_ = grpc::ByteBuffer(&bytes, 1);
  // etcd ends the streams of a member that has lost its leader.
  context_.AddMetadata("hasleader", "true");
  if (!call.token.empty()) context_.AddMetadata("token", call.token);
  if (call.limit) context_.set_deadline(std::chrono::system_clock::now() + *call.limit);
  channel_->stub().PrepareBidiStreamingCall(&context_, call.method, {}, this);
  if (call.limit) {
    StartWriteLast(&request_, {});
  } else {
    StartWrite(&request_);
  }
  StartRead(&answer_);
  StartCall();
}

EtcdStream::~EtcdStream() {
  cancel();
  wait();
}

grpc::Status EtcdStream::wait() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return status_.has_value(); });
  return *status_;
}

void EtcdStream::OnReadDone(bool ok) {
  if (!ok) return;  // the end follows
  seen_(answer_);
  StartRead(&answer_);
}

void EtcdStream::OnDone(const grpc::Status& status) {
  const std::lock_guard lock(mutex_);
  status_ = status;
  ended_.notify_all();
}

bool read_message(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite& message) {
  std::vector<grpc::Slice> slices;
  if (!bytes.Dump(&slices).ok()) return false;
  std::string text;
  text.reserve(bytes.Length());
  for (const grpc::Slice& slice : slices) text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return message.ParseFromString(text);
}

}  // namespace cohort
