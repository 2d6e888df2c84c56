#include "rpc/grpc_use.h"

#include <grpc/grpc.h>
#include <openssl/crypto.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "base/deadline.h"

namespace cohort {

namespace {

constexpr std::chrono::seconds kLongestShutdown(5);
constexpr std::chrono::microseconds kLookAtShutdown(100);

class GrpcUsers {
 public:
  void add() {
    // OpenSSL frees what its threads have when the program ends, and crashes if such a thread ends at the same time.
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
    const std::lock_guard lock(mutex_);
    if (count_++ == 0 && waiting_ == 0) has_others_ = grpc_is_initialized() != 0;
  }

  void remove() {
    const Deadline deadline(kLongestShutdown);
    std::unique_lock lock(mutex_);
    --count_;
    ++waiting_;
    while (count_ == 0 && !has_others_ && grpc_is_initialized() != 0 && !deadline.passed()) {
      lock.unlock();
      std::this_thread::sleep_for(kLookAtShutdown);
      lock.lock();
    }
    --waiting_;
  }

 private:
  std::mutex mutex_;
  int count_ = 0;
  int waiting_ = 0;          // number of last users that wait for the shutdown
  bool has_others_ = false;  // the program uses gRPC, too
};

constinit GrpcUsers grpc_users;

}  // namespace

GrpcUse::GrpcUse() {
  grpc_users.add();
}

GrpcUse::~GrpcUse() {
  grpc_users.remove();
}

}  // namespace cohort
