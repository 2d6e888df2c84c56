// The gRPC credentials of calls between tasks.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <optional>
#include <string>

#include "cohort/cluster/security.h"
#include "rpc/tls_pem.h"

namespace cohort {

// Returns the credentials for mutual TLS from the three files or from the shared secret, or insecure ones if neither is
// given. InvalidArgument: only some of the files are given, or both files and a secret, or a file cannot be read.
std::shared_ptr<grpc::ServerCredentials> server_credentials(const SecurityOptions& options);
std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const SecurityOptions& options);

// The security of this process's job.
struct JobSecurity {
  SecurityOptions security = {};
  bool allow_insecure = false;
};

// Returns what was given, or what the environment says if nothing was (SecurityOptions has the names). The descriptor
// of the launcher's secret stays open, but programs that this one starts do not get it. FailedPrecondition: there is no
// such descriptor.
JobSecurity job_security(const SecurityOptions& given, bool allow_insecure);

// Returns the secret in the file, without the white space around it. InvalidArgument: it cannot be read.
std::string secret_in(const std::string& file);

// Returns the identity that the options speak of, or nothing if nothing is given. InvalidArgument: as above.
std::optional<TlsPem> tls_identity(const SecurityOptions& options);

// Returns the name that a certificate has to have, or "" for the host of the address.
std::string tls_name(const SecurityOptions& options);

}  // namespace cohort
