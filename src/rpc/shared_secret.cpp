#include "rpc/shared_secret.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <array>
#include <memory>
#include <mutex>
#include <utility>

#include "base/fail.h"

namespace cohort {

namespace {

constexpr std::size_t kShortest = 16;
// The cost (N), block size (r) and parallelism (p) of scrypt, as RFC 7914 has them for files: 32 MiB of memory.
constexpr uint64_t kCost = 1 << 15;
constexpr uint64_t kBlock = 8;
constexpr uint64_t kParallel = 1;
constexpr uint64_t kMostMemory = 64 << 20;
constexpr const char* kSalt = "cohort shared secret 1";

template <typename T, void (*Free)(T*)>
struct FreeWith {
  void operator()(T* pointer) const { Free(pointer); }
};
template <typename T, void (*Free)(T*)>
using Owned = std::unique_ptr<T, FreeWith<T, Free>>;

using Key = Owned<EVP_PKEY, EVP_PKEY_free>;
using Certificate = Owned<X509, X509_free>;
using Extension = Owned<X509_EXTENSION, X509_EXTENSION_free>;

struct FreeBio {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using Bio = std::unique_ptr<BIO, FreeBio>;

void require(bool good, const char* what) {
  if (!good) fail<Internal>("[security] the shared secret: ", what, " failed");
}

Key derive_key(const std::string& secret) {
  std::array<unsigned char, 32> bytes{};
  const std::string salt = kSalt;
  require(EVP_PBE_scrypt(secret.data(), secret.size(), reinterpret_cast<const unsigned char*>(salt.data()), salt.size(),
                         kCost, kBlock, kParallel, kMostMemory, bytes.data(), bytes.size()) == 1,
          "scrypt");
  Key key(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, bytes.data(), bytes.size()));
  require(key != nullptr, "making the key");
  return key;
}

void add_extension(X509& certificate, int kind, const std::string& value) {
  const Extension extension(X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str()));
  require(extension && X509_add_ext(&certificate, extension.get(), -1) == 1, "an extension of the certificate");
}

Certificate self_signed(EVP_PKEY& key) {
  Certificate certificate(X509_new());
  require(certificate != nullptr, "making the certificate");
  X509& x509 = *certificate;
  bool good = X509_set_version(&x509, 2) == 1 && ASN1_INTEGER_set(X509_get_serialNumber(&x509), 1) == 1 &&
              ASN1_TIME_set_string_X509(X509_getm_notBefore(&x509), "20000101000000Z") == 1 &&
              ASN1_TIME_set_string_X509(X509_getm_notAfter(&x509), "21000101000000Z") == 1 &&
              X509_set_pubkey(&x509, &key) == 1;
  const std::string name = kSharedSecretName;
  X509_NAME* const subject = X509_get_subject_name(&x509);
  good = good &&
         X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name.data()),
                                    static_cast<int>(name.size()), -1, 0) == 1 &&
         X509_set_issuer_name(&x509, subject) == 1;
  require(good, "filling the certificate");
  add_extension(x509, NID_basic_constraints, "critical,CA:TRUE");
  add_extension(x509, NID_subject_alt_name, "DNS:" + name);
  require(X509_sign(&x509, &key, nullptr) > 0, "signing the certificate");
  return certificate;
}

std::string text_of(BIO& bio) {
  char* data = nullptr;
  const auto size = BIO_get_mem_data(&bio, &data);
  return {data, static_cast<std::size_t>(size)};
}

TlsIdentity make_identity(const std::string& secret) {
  if (secret.size() < kShortest) {
    fail<InvalidArgument>("[security] the shared secret has ", secret.size(), " bytes, wanted at least ", kShortest);
  }
  const Key key = derive_key(secret);
  const Certificate certificate = self_signed(*key);
  const Bio certificate_text(BIO_new(BIO_s_mem()));
  const Bio key_text(BIO_new(BIO_s_mem()));
  require(certificate_text && key_text && PEM_write_bio_X509(certificate_text.get(), certificate.get()) == 1 &&
              PEM_write_bio_PrivateKey(key_text.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1,
          "writing it as text");
  return {.certificate = text_of(*certificate_text), .key = text_of(*key_text)};
}

}  // namespace

// A process speaks with one secret, on many connections.
TlsIdentity identity_from_secret(const std::string& secret) {
  static std::mutex mutex;
  static std::pair<std::string, TlsIdentity> last;
  const std::lock_guard lock(mutex);
  if (last.first != secret) last = {secret, make_identity(secret)};
  return last.second;
}

TlsPem pem_from_secret(const std::string& secret) {
  TlsIdentity identity = identity_from_secret(secret);
  return {.ca = identity.certificate,
          .certificate = identity.certificate,
          .key = std::move(identity.key),
          .name = kSharedSecretName};
}

}  // namespace cohort
