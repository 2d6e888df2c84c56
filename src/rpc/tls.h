// TLS over a socket of our own, for connections that are no gRPC's: both ends prove that they have the job's identity
// before a byte of either is looked at.
#pragma once

#include <openssl/ssl.h>
#include <sys/socket.h>

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "rpc/tls_pem.h"

namespace cohort {

// Keeps what all connections of a group have in common. Thread-safe.
class TlsContext {
 public:
  // InvalidArgument: the texts are no certificates, or do not fit each other.
  explicit TlsContext(const TlsPem& pem);

  SSL_CTX& get() const { return *context_; }
  const std::string& name() const { return name_; }

 private:
  std::shared_ptr<SSL_CTX> context_;
  std::string name_;
};

// A connected socket that never waits in the system, and TLS on it. One thread at a time.
class TlsSocket {
 public:
  TlsSocket() = default;
  // Takes over a socket that accept() returned. Unavailable: the other end is a stranger, speaks no TLS, or is too
  // slow.
  static TlsSocket accepted(int socket, const TlsContext& context, const Deadline& deadline);
  // Connects to the address. Unavailable: as above, or nothing listens there.
  static TlsSocket dial(const sockaddr_storage& address, socklen_t length, const TlsContext& context,
                        const Deadline& deadline);

  // Read or write all bytes. Unavailable: the connection ends before, or the deadline passes.
  void read(std::span<std::byte> bytes, const Deadline& deadline);
  void write(std::span<const std::byte> bytes, const Deadline& deadline);

  // Returns whether both ends have the same address.
  bool is_local() const;

  int fd() const { return socket_ ? *socket_ : -1; }
  SSL* ssl() const { return ssl_.get(); }

  // Gives both away, and the caller closes the socket. One that goes on without TLS does so at the same byte as the
  // other end.
  std::pair<int, std::shared_ptr<SSL>> release();

 private:
  struct CloseSocket {
    void operator()(const int* socket) const;
  };

  TlsSocket(int socket, const TlsContext& context);
  template <typename Call>
  int until_done(const Call& call, const char* what, const Deadline& deadline);

  std::unique_ptr<int, CloseSocket> socket_;
  std::shared_ptr<SSL> ssl_;
};

}  // namespace cohort
