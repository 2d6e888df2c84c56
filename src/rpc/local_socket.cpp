#include "rpc/local_socket.h"

#include <openssl/evp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/draw.h"
#include "cohort/error.h"
#include "rpc/own_folder.h"

namespace cohort {

namespace {

constexpr const char* kPrefix = "rpc-";
constexpr int kLocalBacklog = 1024;
constexpr std::chrono::minutes kYoung(1);  // a socket that is not older may be one at which nobody listens yet

// Returns what tells this boot and network namespace from all others; empty: the system does not say.
std::string this_network() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat space {};
  if (boot.empty() || ::stat("/proc/self/ns/net", &space) != 0) return "";
  return boot + ' ' + std::to_string(space.st_dev) + ' ' + std::to_string(space.st_ino);
}

// Returns the first 16 bytes of the SHA-256 as hexadecimal digits.
std::string digest_of(const std::string& text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  if (EVP_Digest(text.data(), text.size(), bytes.data(), nullptr, EVP_sha256(), nullptr) != 1) return "";
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string digits;
  for (std::size_t i = 0; i < 16; ++i) digits += {kDigits[bytes[i] >> 4], kDigits[bytes[i] & 15]};
  return digits;
}

std::string folder_or_none() {
  try {
    return own_folder();
  } catch (const Error&) {
    return "";  // tasks go by the network
  }
}

std::optional<sockaddr_un> address_of(const std::string& file) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (file.empty() || file.size() >= sizeof(address.sun_path)) return std::nullopt;
  std::memcpy(address.sun_path, file.data(), file.size());
  return address;
}

// Returns a new socket after ::bind or ::connect, or -1 and sets errno.
template <typename Call>
int open_socket(const std::string& file, const Call& call) {
  const std::optional<sockaddr_un> address = address_of(file);
  const int socket = address ? ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
  if (socket < 0) return -1;
  if (call(socket, reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) == 0) return socket;
  const int error = errno;
  ::close(socket);
  errno = error;
  return -1;
}

// Returns 0 if somebody listens at the file, or the error.
int try_to_connect(const std::string& file) {
  const int socket = open_socket(file, ::connect);
  if (socket < 0) return errno;
  ::close(socket);
  return 0;
}

// Removes the sockets of servers that were killed.
void sweep(const std::string& folder) {
  std::error_code ignored;
  const auto now = std::filesystem::file_time_type::clock::now();
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string file = entry.path().string();
    if (entry.path().filename().string().rfind(kPrefix, 0) != 0 || !entry.is_socket(ignored)) continue;
    if (now - entry.last_write_time(ignored) < kYoung) continue;
    if (try_to_connect(file) == ECONNREFUSED) ::unlink(file.c_str());
  }
}

unsigned long inode_of(const std::string& file) {
  struct stat found {};
  return ::lstat(file.c_str(), &found) == 0 ? found.st_ino : 0;
}

}  // namespace

std::string local_socket(const std::string& address, const std::optional<TlsPem>& identity) {
  if (!identity) return "";
  const std::string folder = folder_or_none();
  const std::string network = this_network();
  if (folder.empty() || network.empty()) return "";
  const std::string name =
      digest_of(network + '\n' + address + '\n' + identity->name + '\n' + identity->ca + identity->key);
  std::string file = folder + '/' + kPrefix + name;
  return !name.empty() && address_of(file) ? file : "";
}

bool listens_at(const std::string& file) {
  if (file.empty()) return false;
  const int error = try_to_connect(file);
  return error == 0 || error == EAGAIN;  // EAGAIN: many others wait for it
}

LocalSocket::LocalSocket(const std::optional<TlsPem>& identity) : identity_(identity) {
  if (local_socket("", identity_).empty()) return;
  const std::string folder = folder_or_none();
  sweep(folder);
  draft_ = folder + '/' + kPrefix + digest_of(std::to_string(::getpid()) + std::to_string(draw_number()));
  socket_ = open_socket(draft_, ::bind);
  if (socket_ >= 0 && ::listen(socket_, kLocalBacklog) != 0) ::close(std::exchange(socket_, -1));
}

LocalSocket::~LocalSocket() {
  if (socket_ >= 0) ::close(socket_);
  if (!draft_.empty()) ::unlink(draft_.c_str());  // if the server did not come to have its address
  if (inode_ != 0 && inode_of(file_) == inode_) ::unlink(file_.c_str());
}

int LocalSocket::show(const std::string& address) {
  if (socket_ < 0) return -1;
  file_ = local_socket(address, identity_);
  inode_ = inode_of(draft_);
  if (!file_.empty() && ::rename(draft_.c_str(), file_.c_str()) == 0) return std::exchange(socket_, -1);
  inode_ = 0;
  return -1;
}

bool is_own_user(int connection) {
  ucred other{};
  socklen_t length = sizeof(other);
  return ::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &other, &length) == 0 && other.uid == ::getuid();
}

}  // namespace cohort
