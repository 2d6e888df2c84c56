// gRPC credentials of the calls between tasks.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "cohort/cluster/security.h"

namespace cohort {

// Mutual TLS from the three files or the shared secret, or none where nothing is given. InvalidArgument: only some of
// the files are given, or both they and a secret, or one cannot be read.
std::shared_ptr<grpc::ServerCredentials> server_credentials(const SecurityOptions& options);
std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const SecurityOptions& options);

// Whom a certificate has to name; empty: the host of the address.
std::string tls_name(const SecurityOptions& options);

}  // namespace cohort
