// Calls without tensors: the request in one, and answers to it.
#pragma once

#include <memory>

#include "messages.pb.h"
#include "parameter_server/wire/frame.h"
#include "parameter_server/wire/rpc.h"

namespace cohort {

// DataLoss: it is damaged, or tensors came with it.
template <typename Request>
Request request_of(const std::shared_ptr<RpcCall>& call) {
  Request request;
  FrameReader(call->request(), request).finish();
  return request;
}

template <typename Reply = parameter_server::Empty>
void answer(const std::shared_ptr<RpcCall>& call, const Reply& reply = {}) {
  call->reply(make_frame(reply));
}

}  // namespace cohort
