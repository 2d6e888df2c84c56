#include "rpc/tls.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/fail.h"

namespace cohort {

namespace {

template <typename T, auto Free>
struct FreedBy {
  void operator()(T* pointer) const { (void)Free(pointer); }
};
using TextIn = std::unique_ptr<BIO, FreedBy<BIO, BIO_free>>;
using X509Owner = std::unique_ptr<X509, FreedBy<X509, X509_free>>;
using KeyOwner = std::unique_ptr<EVP_PKEY, FreedBy<EVP_PKEY, EVP_PKEY_free>>;

std::string openssl_reason() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (code == 0) return "it ended the connection";
  std::array<char, 256> text{};
  ERR_error_string_n(code, text.data(), text.size());
  return text.data();
}

TextIn text_in(const std::string& pem) {
  return TextIn(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

void require_usable(bool good, const char* what) {
  if (!good) fail<InvalidArgument>("[security] ", what, " cannot be used: ", openssl_reason());
}

// Adds the certificates of a text: its own and those that lead to the authority, or the authorities themselves.
template <typename Add>
void for_each_certificate(const std::string& pem, const char* what, const Add& add) {
  const TextIn bio = text_in(pem);
  int count = 0;
  while (X509Owner certificate{PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)}) {
    require_usable(add(std::move(certificate), count++), what);
  }
  require_usable(count > 0, what);
  ERR_clear_error();  // the end of the text counts as an error
}

void set_up(SSL_CTX& context, const TlsPem& pem) {
  SSL_CTX_set_min_proto_version(&context, TLS1_3_VERSION);
  SSL_CTX_set_num_tickets(&context, 0);  // nothing stands in the stream beside what the ends write
  SSL_CTX_set_session_cache_mode(&context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_verify(&context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_mode(&context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  for_each_certificate(pem.certificate, "the certificate", [&](X509Owner certificate, int number) {
    if (number == 0) return SSL_CTX_use_certificate(&context, certificate.get()) == 1;
    return SSL_CTX_add_extra_chain_cert(&context, certificate.release()) == 1;
  });
  for_each_certificate(pem.ca, "the authority's certificate", [&](const X509Owner& certificate, int /*number*/) {
    return X509_STORE_add_cert(SSL_CTX_get_cert_store(&context), certificate.get()) == 1;
  });
  const KeyOwner key(PEM_read_bio_PrivateKey(text_in(pem.key).get(), nullptr, nullptr, nullptr));
  require_usable(key && SSL_CTX_use_PrivateKey(&context, key.get()) == 1 && SSL_CTX_check_private_key(&context) == 1,
                 "the private key");
}

// OpenSSL writes to connections that the other side may have closed, which ends a program that has not said otherwise.
void survive_closed_connections() {
  struct sigaction now {};
  if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
}

bool wait_for(int socket, short events, const Deadline& deadline) {
  pollfd place{.fd = socket, .events = events, .revents = 0};
  for (;;) {
    const int ready = ::poll(&place, 1, static_cast<int>(deadline.left().count()));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

template <typename Address>
const Address& as(const sockaddr_storage& address) {
  return reinterpret_cast<const Address&>(address);
}

bool same_host(const sockaddr_storage& a, const sockaddr_storage& b) {
  if (a.ss_family != b.ss_family) return false;
  if (a.ss_family == AF_INET) return as<sockaddr_in>(a).sin_addr.s_addr == as<sockaddr_in>(b).sin_addr.s_addr;
  return a.ss_family == AF_INET6 && IN6_ARE_ADDR_EQUAL(&as<sockaddr_in6>(a).sin6_addr, &as<sockaddr_in6>(b).sin6_addr);
}

}  // namespace

TlsContext::TlsContext(const TlsPem& pem) : context_(SSL_CTX_new(TLS_method()), SSL_CTX_free), name_(pem.name) {
  survive_closed_connections();
  require_usable(context_ != nullptr, "TLS");
  set_up(*context_, pem);
}

void TlsSocket::CloseSocket::operator()(const int* socket) const {
  ::close(*socket);
  delete socket;  // NOLINT(cppcoreguidelines-owning-memory): its owner calls this
}

TlsSocket::TlsSocket(int socket, const TlsContext& context)
    : socket_(new int(socket)), ssl_(SSL_new(&context.get()), SSL_free) {
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
  if (!ssl_ || SSL_set_fd(ssl_.get(), socket) != 1) fail<Internal>("[security] TLS: ", openssl_reason());
}

// Repeats the call until it is done. Returns its result.
template <typename Call>
int TlsSocket::until_done(const Call& call, const char* what, const Deadline& deadline) {
  for (;;) {
    ERR_clear_error();
    const int result = call();
    if (result > 0) return result;
    const int error = SSL_get_error(ssl_.get(), result);
    const bool wants = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
    if (!wants) fail<Unavailable>("[security] ", what, ": ", openssl_reason());
    const short events = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    if (deadline.passed() || !wait_for(fd(), events, deadline)) {
      fail<Unavailable>("[security] ", what, ": nothing came within ", to_text(deadline.limit()));
    }
  }
}

TlsSocket TlsSocket::accepted(int socket, const TlsContext& context, const Deadline& deadline) {
  TlsSocket end(socket, context);
  end.until_done([&] { return SSL_accept(end.ssl()); }, "the other end proves nothing", deadline);
  return end;
}

TlsSocket TlsSocket::dial(const sockaddr_storage& address, socklen_t length, const TlsContext& context,
                          const Deadline& deadline) {
  const int socket = ::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) fail<Unavailable>("[security] no socket: ", std::strerror(errno));
  TlsSocket end(socket, context);
  int error = ::connect(socket, reinterpret_cast<const sockaddr*>(&address), length) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    if (!wait_for(socket, POLLOUT, deadline)) fail<Unavailable>("[security] there is no connection in time");
    socklen_t size = sizeof(error);
    ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error != 0) fail<Unavailable>("[security] there is no connection: ", std::strerror(error));
  if (!context.name().empty()) SSL_set1_host(end.ssl(), context.name().c_str());
  end.until_done([&] { return SSL_connect(end.ssl()); }, "the other end proves nothing", deadline);
  return end;
}

void TlsSocket::read(std::span<std::byte> bytes, const Deadline& deadline) {
  while (!bytes.empty()) {
    const int count = until_done([&] { return SSL_read(ssl(), bytes.data(), static_cast<int>(bytes.size())); },
                                 "the other end said nothing", deadline);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void TlsSocket::write(std::span<const std::byte> bytes, const Deadline& deadline) {
  while (!bytes.empty()) {
    const int count = until_done([&] { return SSL_write(ssl(), bytes.data(), static_cast<int>(bytes.size())); },
                                 "the other end heard nothing", deadline);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

bool TlsSocket::is_local() const {
  sockaddr_storage own{};
  sockaddr_storage other{};
  socklen_t length = sizeof(own);
  if (::getsockname(fd(), reinterpret_cast<sockaddr*>(&own), &length) != 0) return false;
  length = sizeof(other);
  return ::getpeername(fd(), reinterpret_cast<sockaddr*>(&other), &length) == 0 && same_host(own, other);
}

std::pair<int, std::shared_ptr<SSL>> TlsSocket::release() {
  const std::unique_ptr<int> socket(socket_.release());
  return {*socket, std::exchange(ssl_, nullptr)};
}

}  // namespace cohort
