#include "rpc/security.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/fail.h"
#include "rpc/shared_secret.h"

namespace cohort {

namespace {

struct Pem {
  std::string ca;
  std::string certificate;
  std::string key;
};

std::string read(const char* what, const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (in && !text.empty()) return text;
  fail<InvalidArgument>("[security] ", what, " \"", file, "\" cannot be read");
}

std::string secret_in(const std::string& file) {
  std::string secret = read("secret_file", file);
  const auto is_space = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
  while (!secret.empty() && is_space(secret.back())) secret.pop_back();
  secret.erase(secret.begin(), std::find_if_not(secret.begin(), secret.end(), is_space));
  return secret;
}

std::optional<Pem> read_files(const SecurityOptions& options) {
  const int given = !options.ca_file.empty() + !options.certificate_file.empty() + !options.key_file.empty();
  if (given == 0 && options.secret_file.empty()) return std::nullopt;
  if (given > 0 && !options.secret_file.empty()) {
    fail<InvalidArgument>("[security] there are certificates and a secret_file, \"", options.secret_file,
                          "\"; wanted one of them");
  }
  if (given == 0) {
    TlsIdentity identity = identity_from_secret(secret_in(options.secret_file));
    return Pem{.ca = identity.certificate, .certificate = identity.certificate, .key = std::move(identity.key)};
  }
  if (given < 3) {
    fail<InvalidArgument>("[security] needs ca_file, certificate_file and key_file together, got \"", options.ca_file,
                          "\", \"", options.certificate_file, "\" and \"", options.key_file, "\"");
  }
  return Pem{.ca = read("ca_file", options.ca_file),
             .certificate = read("certificate_file", options.certificate_file),
             .key = read("key_file", options.key_file)};
}

}  // namespace

std::shared_ptr<grpc::ServerCredentials> server_credentials(const SecurityOptions& options) {
  const std::optional<Pem> pem = read_files(options);
  if (!pem) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions ssl(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  ssl.pem_root_certs = pem->ca;
  ssl.pem_key_cert_pairs.push_back({pem->key, pem->certificate});
  return grpc::SslServerCredentials(ssl);
}

std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const SecurityOptions& options) {
  const std::optional<Pem> pem = read_files(options);
  if (!pem) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials(
      {.pem_root_certs = pem->ca, .pem_private_key = pem->key, .pem_cert_chain = pem->certificate});
}

std::string tls_name(const SecurityOptions& options) {
  return options.secret_file.empty() ? options.server_name : kSharedSecretName;
}

}  // namespace cohort
