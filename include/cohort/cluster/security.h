// Security: who may speak to the tasks of a cluster. There is one policy for all that tasks say to each other:
// membership, parameter servers, collectives and the launchers of an elastic run.
#pragma once

#include <string>

namespace cohort {

// Mutual TLS between tasks: all three files (PEM), or a secret that all tasks have. If nothing is given, the
// environment decides: `cohort launch` hands its workers a secret (COHORT_SECRET_FD), and COHORT_SECRET_FILE, or
// COHORT_TLS_CA with COHORT_TLS_CERT and COHORT_TLS_KEY, name files. If that says nothing either, tasks speak to each
// other without protection, on loopback only unless allow_insecure (COHORT_INSECURE=1) is set.
struct SecurityOptions {
  std::string ca_file = "";           // the authority that signed the certificates which are accepted
  std::string certificate_file = "";  // this task's certificate
  std::string key_file = "";          // its private key
  std::string server_name = "";       // the name in the other end's certificate; empty: the host of its address
  // A file that takes the place of the others: it has 16 bytes or more (surrounding white space aside), the same for
  // all tasks, such as `head -c 32 /dev/urandom | base64` makes.
  std::string secret_file = "";

  // Returns whether anything was given.
  bool given() const {
    return !ca_file.empty() || !certificate_file.empty() || !key_file.empty() || !secret_file.empty();
  }
};

}  // namespace cohort
