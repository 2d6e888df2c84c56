#include "collective/mpi/mpi.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/fail.h"
#include "cluster/mpi_api.h"
#include "cluster/mpi_runtime.h"

namespace cohort {

namespace {

constexpr std::size_t kLargest = std::size_t{1} << 30;  // bytes of one message: MPI counts in int
constexpr int kTag = 1;
// Tests of a message before the waiting thread gives way to others on its core, and before it sleeps in between.
constexpr int kSpins = 2000;
constexpr int kYields = 20'000;

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw std::runtime_error(c10::str(call, ": ", text));
}

class MpiWire final : public Wire {
 public:
  explicit MpiWire(std::chrono::milliseconds timeout) : timeout_(timeout) {
    check(MPI_Comm_dup(MPI_COMM_WORLD, &group_), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(group_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(group_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(group_, &size_), "MPI_Comm_size");
  }
  MpiWire(const MpiWire&) = delete;
  MpiWire& operator=(const MpiWire&) = delete;
  ~MpiWire() override { drop(); }  // the communicator goes with the process: to free it is collective

  std::string_view name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Ticket send(int to, std::span<const std::byte> bytes) override {
    return start(bytes.size(), [&](std::size_t at, int count, MPI_Request* request) {
      check(MPI_Isend(bytes.data() + at, count, MPI_BYTE, to, kTag, group_, request), "MPI_Isend");
    });
  }

  Ticket receive(int from, std::span<std::byte> bytes) override {
    return start(bytes.size(), [&](std::size_t at, int count, MPI_Request* request) {
      check(MPI_Irecv(bytes.data() + at, count, MPI_BYTE, from, kTag, group_, request), "MPI_Irecv");
    });
  }

  void wait(Ticket ticket) override {
    std::vector<MPI_Request>& parts = messages_[ticket];
    const Deadline deadline(timeout_);
    for (int tests = 0;; ++tests) {
      int done = 0;
      check(MPI_Testall(static_cast<int>(parts.size()), parts.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
      if (done != 0) break;
      if (aborted_) throw std::runtime_error("aborted");
      if (tests < kSpins) continue;
      if (tests < kYields) {
        std::this_thread::yield();
        continue;
      }
      if (deadline.passed()) throw std::runtime_error("timed out");
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    ++done_;
    if (done_ == messages_.size()) clear();
  }

  void drop() noexcept override {
    for (std::vector<MPI_Request>& parts : messages_) {
      for (MPI_Request& request : parts) {
        if (request == MPI_REQUEST_NULL) continue;
        MPI_Cancel(&request);
        MPI_Request_free(&request);
        abandon_mpi();  // what is under way never ends: MPI_Finalize would wait for it
      }
    }
    clear();
  }

  void abort() noexcept override { aborted_ = true; }

 private:
  template <typename Start>
  Ticket start(std::size_t bytes, const Start& start_part) {
    std::vector<MPI_Request>& parts = messages_.emplace_back();
    for (std::size_t at = 0; at < bytes; at += kLargest) {
      parts.push_back(MPI_REQUEST_NULL);
      start_part(at, static_cast<int>(std::min(kLargest, bytes - at)), &parts.back());
    }
    return messages_.size() - 1;
  }

  void clear() {
    messages_.clear();
    done_ = 0;
  }

  std::chrono::milliseconds timeout_;
  MPI_Comm group_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  std::vector<std::vector<MPI_Request>> messages_;  // by ticket
  std::size_t done_ = 0;
  std::atomic<bool> aborted_ = false;
};

}  // namespace

std::unique_ptr<Wire> make_mpi(std::chrono::milliseconds timeout) {
  start_mpi();
  return std::make_unique<MpiWire>(timeout);
}

}  // namespace cohort
