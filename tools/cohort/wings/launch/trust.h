// Trust: by what the processes of a job know each other. Unless it is told otherwise, a launcher draws a secret for
// each job. Its workers inherit it as a descriptor, launchers on other machines get it from their standard input: it
// never stands in an argument or a variable, which others can read.
#pragma once

#include <map>
#include <string>

#include "cohort/cluster/security.h"

namespace cohort::cli {

struct TrustOptions {
  std::string secret_file;  // the secret, in place of a drawn one
  std::string tls_ca;       // or certificates: three files that all machines have
  std::string tls_cert;
  std::string tls_key;
  bool insecure = false;  // or nothing
};

// Where the launcher gets a secret from if its options and environment say nothing.
enum class SecretSource {
  kDrawn,   // a new one: this launcher starts all workers
  kOfUser,  // the one that this user's launchers on this machine share: they find each other on loopback
  kNone,    // other launchers take part, and do not know a secret that is drawn here
};

class Trust {
 public:
  // Makes a job's trust. `handed` is a secret that another launcher has handed over; empty: none. InvalidArgument: the
  // options do not fit each other, or a file cannot be read.
  Trust(const TrustOptions& options, SecretSource source, const std::string& handed = "");
  Trust(const Trust&) = delete;
  Trust& operator=(const Trust&) = delete;
  ~Trust();

  // Returns the variables that workers get.
  const std::map<std::string, std::string>& variables() const { return variables_; }
  // Returns the secret; empty: the job has none.
  const std::string& secret() const { return secret_; }
  // Returns the same for the launcher's own connections.
  SecurityOptions security() const;
  bool insecure() const { return insecure_; }

 private:
  std::string choose(const TrustOptions& options, SecretSource source);
  void keep(const std::string& secret);

  std::map<std::string, std::string> variables_;
  std::string secret_;
  SecurityOptions given_;
  bool insecure_ = false;
  int fd_ = -1;
};

}  // namespace cohort::cli
