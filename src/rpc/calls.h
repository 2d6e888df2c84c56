// Calls without tensors: reading their requests and answering them.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "rpc/channel.h"
#include "rpc/frame.h"
#include "rpc/server.h"

namespace cohort {

// Returns the message of a frame that has nothing else. DataLoss: it is damaged, or tensors came with it.
template <typename Message>
Message message_in(const Frame& frame) {
  Message message;
  FrameReader(frame, message).finish();
  return message;
}

template <typename Request>
Request request_of(const std::shared_ptr<RpcCall>& call) {
  return message_in<Request>(call->request());
}

template <typename Reply = rpc::Empty>
void answer(const std::shared_ptr<RpcCall>& call, const Reply& reply = {}) {
  call->reply(make_frame(reply));
}

// Calls and waits for the answer. Throws what RpcClient::call throws, and DataLoss if the answer is damaged.
template <typename Reply = rpc::Empty, typename Request>
Reply ask(RpcClient& peer, const std::string& method, const Request& request, std::chrono::milliseconds limit) {
  return message_in<Reply>(peer.call(method, make_frame(request), limit).get());
}

}  // namespace cohort
