// The gRPC credentials of calls between tasks.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "cohort/cluster/security.h"

namespace cohort {

// Returns the credentials for mutual TLS from the three files or from the shared secret, or insecure ones if neither is
// given. InvalidArgument: only some of the files are given, or both files and a secret, or a file cannot be read.
std::shared_ptr<grpc::ServerCredentials> server_credentials(const SecurityOptions& options);
std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const SecurityOptions& options);

// Returns the name that a certificate has to have, or "" for the host of the address.
std::string tls_name(const SecurityOptions& options);

}  // namespace cohort
