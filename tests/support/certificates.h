// Certificates for tests, made by the program openssl.
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "rpc/tls_pem.h"
#include "tests/support/files.h"

namespace cohort::testing {

inline void run_openssl(const std::string& arguments) {
  if (std::system(("openssl " + arguments + " 2>/dev/null").c_str()) != 0) throw std::runtime_error("openssl failed");
}

// A certificate of its own, signed by itself; its files in the folder.
struct Certificate {
  Certificate(const TemporaryFolder& folder, const std::string& name)
      : certificate(folder / (name + ".pem")), key(folder / (name + ".key")) {
    run_openssl("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=" + name +
                " -addext subjectAltName=DNS:" + name + " -keyout " + key + " -out " + certificate);
  }
  std::string certificate;
  std::string key;
};

// An authority that signs the certificates of tasks.
class Authority {
 public:
  Authority(const TemporaryFolder& folder, const std::string& name) : folder_(folder), own_(folder, name) {}

  // Returns the identity of a task with a certificate of this authority.
  TlsPem issue(const std::string& name) const {
    const std::string key = folder_ / (name + ".key");
    const std::string request = folder_ / (name + ".csr");
    const std::string certificate = folder_ / (name + ".pem");
    run_openssl("req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=" + name + " -keyout " + key +
                " -out " + request);
    run_openssl("x509 -req -days 2 -CAcreateserial -in " + request + " -CA " + own_.certificate + " -CAkey " +
                own_.key + " -out " + certificate);
    return {.ca = read_file(own_.certificate), .certificate = read_file(certificate), .key = read_file(key)};
  }

 private:
  const TemporaryFolder& folder_;
  Certificate own_;
};

}  // namespace cohort::testing
