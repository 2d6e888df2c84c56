#include "rpc/security.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "base/fail.h"
#include "rpc/address.h"
#include "rpc/shared_secret.h"

namespace cohort {

namespace {

std::string read(const char* what, const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (in && !text.empty()) return text;
  fail<InvalidArgument>("[security] ", what, " \"", file, "\" cannot be read");
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Returns the name of the file that the launcher has handed over. Only a file of memory that cannot be written any more
// has seals, so another file under that number is not taken for it.
std::string secret_behind(const std::string& number) {
  const std::optional<int> fd = parse_int(number);
  if (!fd || *fd < 0 || ::fcntl(*fd, F_GET_SEALS) < F_SEAL_WRITE) {
    fail<FailedPrecondition>("[security] COHORT_SECRET_FD is \"", number, "\", but the job's secret is not there: a ",
                             "program between the launcher and this one has closed it; let it pass the descriptor on, ",
                             "or give the launcher a --secret_file and this program its name in COHORT_SECRET_FILE, ",
                             "with COHORT_SECRET_FD empty");
  }
  ::fcntl(*fd, F_SETFD, FD_CLOEXEC);
  return "/proc/self/fd/" + number;
}

}  // namespace

std::string secret_in(const std::string& file) {
  std::string secret = read("secret_file", file);
  const auto is_space = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
  while (!secret.empty() && is_space(secret.back())) secret.pop_back();
  secret.erase(secret.begin(), std::find_if_not(secret.begin(), secret.end(), is_space));
  return secret;
}

std::optional<TlsPem> tls_identity(const SecurityOptions& options) {
  const int given = !options.ca_file.empty() + !options.certificate_file.empty() + !options.key_file.empty();
  if (given == 0 && options.secret_file.empty()) return std::nullopt;
  if (given > 0 && !options.secret_file.empty()) {
    fail<InvalidArgument>("[security] there are certificates and a secret_file, \"", options.secret_file,
                          "\"; wanted one of them");
  }
  if (given == 0) {
    return pem_from_secret(secret_in(options.secret_file));
  }
  if (given < 3) {
    fail<InvalidArgument>("[security] needs ca_file, certificate_file and key_file together, got \"", options.ca_file,
                          "\", \"", options.certificate_file, "\" and \"", options.key_file, "\"");
  }
  return TlsPem{.ca = read("ca_file", options.ca_file),
                .certificate = read("certificate_file", options.certificate_file),
                .key = read("key_file", options.key_file),
                .name = options.server_name};
}

JobSecurity job_security(const SecurityOptions& given, bool allow_insecure) {
  if (given.given() || allow_insecure) return {.security = given, .allow_insecure = allow_insecure};
  if (const std::string number = variable("COHORT_SECRET_FD"); !number.empty()) {
    return {.security = {.secret_file = secret_behind(number)}};
  }
  return {.security = {.ca_file = variable("COHORT_TLS_CA"),
                       .certificate_file = variable("COHORT_TLS_CERT"),
                       .key_file = variable("COHORT_TLS_KEY"),
                       .secret_file = variable("COHORT_SECRET_FILE")},
          .allow_insecure = variable("COHORT_INSECURE") == "1"};
}

std::shared_ptr<grpc::ServerCredentials> server_credentials(const SecurityOptions& options) {
  const std::optional<TlsPem> pem = tls_identity(options);
  if (!pem) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions ssl(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  ssl.pem_root_certs = pem->ca;
  ssl.pem_key_cert_pairs.push_back({pem->key, pem->certificate});
  return grpc::SslServerCredentials(ssl);
}

std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const SecurityOptions& options) {
  const std::optional<TlsPem> pem = tls_identity(options);
  if (!pem) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials(
      {.pem_root_certs = pem->ca, .pem_private_key = pem->key, .pem_cert_chain = pem->certificate});
}

std::string tls_name(const SecurityOptions& options) {
  return options.secret_file.empty() ? options.server_name : kSharedSecretName;
}

}  // namespace cohort
