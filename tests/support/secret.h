// Identities for tests.
#pragma once

#include <string>

#include "rpc/shared_secret.h"
#include "rpc/tls_pem.h"

namespace cohort::testing {

// The identity of a task that knows the secret.
inline TlsPem identity_of(const std::string& secret) {
  return pem_from_secret(secret);
}

}  // namespace cohort::testing
