// Identities for tests.
#pragma once

#include <string>

#include "rpc/shared_secret.h"
#include "rpc/tls_pem.h"

namespace cohort::testing {

// The identity of a task that knows the secret.
inline TlsPem identity_of(const std::string& secret) {
  TlsIdentity identity = identity_from_secret(secret);
  return {.ca = identity.certificate,
          .certificate = identity.certificate,
          .key = std::move(identity.key),
          .name = kSharedSecretName};
}

}  // namespace cohort::testing
