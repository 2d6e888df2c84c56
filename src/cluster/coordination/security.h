// gRPC credentials of the control channel.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "cohort/membership.h"

namespace cohort {

// Mutual TLS from the three files, or none where none is given. InvalidArgument: only some are given, or one cannot be
// read.
std::shared_ptr<grpc::ServerCredentials> server_credentials(const SecurityOptions& options);
std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const SecurityOptions& options);

}  // namespace cohort
