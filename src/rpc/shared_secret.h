// Mutual TLS from a secret that all tasks know, instead of certificates. Each task derives the same key and the same
// self-signed certificate from it, and trusts nobody else.
#pragma once

#include <string>

#include "rpc/tls_pem.h"

namespace cohort {

struct TlsIdentity {
  std::string certificate;  // PEM
  std::string key;
};

// The host name in the certificate.
inline constexpr const char* kSharedSecretName = "cohort";

// Returns the identity that follows from the secret. The secret is stretched by scrypt (C. Percival, RFC 7914) to an
// Ed25519 key; the certificate has fixed dates, 2000 to 2100, and no random part. Takes about 0.1 s and 32 MiB
// for a secret that is not the last one.
// InvalidArgument: the secret is shorter than 16 bytes.
TlsIdentity identity_from_secret(const std::string& secret);
// Returns it as both ends show and believe it.
TlsPem pem_from_secret(const std::string& secret);

}  // namespace cohort
