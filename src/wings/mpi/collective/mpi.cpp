// Messages and collectives of one communicator of MPI's. All are begun without a wait, so that each wait has a deadline
// and ends when the group fails. MPI takes pointers into CPU tensors.
#include "wings/mpi/collective/mpi.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/fail.h"
#include "base/hash.h"
#include "collective/engine.h"
#include "wings/mpi/cluster/mpi_api.h"
#include "wings/mpi/cluster/mpi_runtime.h"

namespace cohort {

namespace {

constexpr std::size_t kLargest = std::size_t{1} << 30;  // bytes of one message: MPI counts in int
constexpr uint32_t kTags = 32768;                       // every MPI library has so many
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

MPI_Datatype type_of(torch::ScalarType dtype) {
  if (dtype == torch::kFloat) return MPI_FLOAT;
  return dtype == torch::kDouble ? MPI_DOUBLE : MPI_INT64_T;
}

class MpiTransport final : public Transport, public Engine {
 public:
  MpiTransport(MPI_Comm group, std::chrono::milliseconds timeout) : timeout_(timeout), group_(group) {
    check(MPI_Comm_set_errhandler(group_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(group_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(group_, &size_), "MPI_Comm_size");
  }
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;
  ~MpiTransport() override = default;  // the group goes with the process: to free it is collective

  std::string_view name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<Message> send(int to, std::span<const std::byte> bytes, Lane lane) override {
    return start(bytes.size(), [&](std::size_t at, int count, MPI_Request* request) {
      check(MPI_Isend(bytes.data() + at, count, MPI_BYTE, to, tag_of(lane), group_, request), "MPI_Isend");
    });
  }

  std::unique_ptr<Message> receive(int from, std::span<std::byte> bytes, Lane lane) override {
    return start(bytes.size(), [&](std::size_t at, int count, MPI_Request* request) {
      check(MPI_Irecv(bytes.data() + at, count, MPI_BYTE, from, tag_of(lane), group_, request), "MPI_Irecv");
    });
  }

  std::unique_ptr<Transport> subset(std::span<const int> ranks, const std::string& name) override {
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group some = MPI_GROUP_NULL;
    MPI_Comm group = MPI_COMM_NULL;
    check(MPI_Comm_group(group_, &all), "MPI_Comm_group");
    check(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &some), "MPI_Group_incl");
    const int tag = static_cast<int>(hash_of(name) % kTags);
    check(MPI_Comm_create_group(group_, some, tag, &group), "MPI_Comm_create_group");
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    return std::make_unique<MpiTransport>(group, timeout_);
  }

  Engine* engine() override { return this; }
  void abort() noexcept override { aborted_ = true; }

  // MPI has no half types.
  bool adds(torch::ScalarType dtype) const override {
    return dtype == torch::kFloat || dtype == torch::kDouble || dtype == torch::kLong;
  }

  void all_reduce(const torch::Tensor& flat) override {
    complete({.tensors = {flat}}, [&](Call&, MPI_Request* request) {
      check(MPI_Iallreduce(MPI_IN_PLACE, flat.data_ptr(), static_cast<int>(flat.numel()), type_of(flat.scalar_type()),
                           MPI_SUM, group_, request),
            "MPI_Iallreduce");
    });
  }

  void reduce_scatter(const std::vector<torch::Tensor>& parts, const torch::Tensor& sum) override {
    const torch::Tensor pieces = at::cat(parts);
    std::vector<int> sizes;
    for (const torch::Tensor& part : parts) sizes.push_back(static_cast<int>(part.numel()));
    complete({.tensors = {pieces, sum}, .sizes = std::move(sizes)}, [&](Call& call, MPI_Request* request) {
      check(MPI_Ireduce_scatter(pieces.data_ptr(), sum.data_ptr(), call.sizes.data(), type_of(sum.scalar_type()),
                                MPI_SUM, group_, request),
            "MPI_Ireduce_scatter");
    });
  }

  void all_gather(const torch::Tensor& own, const std::vector<int64_t>& sizes, const torch::Tensor& all) override {
    Call parts{.tensors = {own, all}, .sizes = std::vector<int>(sizes.begin(), sizes.end()), .begins = {0}};
    std::partial_sum(parts.sizes.begin(), parts.sizes.end() - 1, std::back_inserter(parts.begins));
    complete(std::move(parts), [&](Call& call, MPI_Request* request) {
      check(MPI_Iallgatherv(own.data_ptr(), static_cast<int>(own.nbytes()), MPI_BYTE, all.data_ptr(), call.sizes.data(),
                            call.begins.data(), MPI_BYTE, group_, request),
            "MPI_Iallgatherv");
    });
  }

  void broadcast(const torch::Tensor& bytes, int root) override {
    complete({.tensors = {bytes}}, [&](Call&, MPI_Request* request) {
      check(MPI_Ibcast(bytes.data_ptr(), static_cast<int>(bytes.nbytes()), MPI_BYTE, root, group_, request),
            "MPI_Ibcast");
    });
  }

 private:
  // What MPI reads and writes until a collective has come to its end.
  struct Call {
    std::vector<torch::Tensor> tensors;
    std::vector<int> sizes = {};
    std::vector<int> begins = {};
  };

  // A collective that is under way can neither be cancelled nor freed: what it uses stays when it does not end.
  template <typename Start>
  void complete(Call call, const Start& start_call) {
    const auto kept = std::make_shared<Call>(std::move(call));
    MPI_Request request = MPI_REQUEST_NULL;
    start_call(*kept, &request);
    try {
      wait_for({&request, 1});
    } catch (...) {
      abandon_mpi(kept);
      throw;
    }
  }

  void wait_for(std::span<MPI_Request> requests) const {
    const Deadline deadline(timeout_);
    for (int tests = 0;; ++tests) {
      int done = 0;
      check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
      if (done != 0) return;
      if (aborted_) throw std::runtime_error("aborted");
      if (tests < kSpins) continue;
      if (tests < kYields) {
        std::this_thread::yield();
        continue;
      }
      if (deadline.passed()) throw std::runtime_error("timed out");
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  // The parts of a message, of which MPI counts no more than kLargest bytes each.
  class Parts final : public Message {
   public:
    explicit Parts(const MpiTransport& transport) : transport_(transport) {}
    Parts(const Parts&) = delete;
    Parts& operator=(const Parts&) = delete;
    ~Parts() override {
      for (MPI_Request& request : requests_) {
        if (request == MPI_REQUEST_NULL) continue;
        MPI_Cancel(&request);
        MPI_Request_free(&request);
        abandon_mpi(nullptr);  // an operation under way never ends: MPI_Finalize would wait for it
      }
    }

    MPI_Request* add() { return &requests_.emplace_back(MPI_REQUEST_NULL); }

    void wait() override { transport_.wait_for(requests_); }

   private:
    const MpiTransport& transport_;
    std::vector<MPI_Request> requests_;
  };

  template <typename Start>
  std::unique_ptr<Message> start(std::size_t bytes, const Start& start_part) const {
    auto message = std::make_unique<Parts>(*this);
    for (std::size_t at = 0; at < bytes; at += kLargest) {
      start_part(at, static_cast<int>(std::min(kLargest, bytes - at)), message->add());
    }
    return message;
  }

  static int tag_of(Lane lane) {
    if (lane < kTags) return static_cast<int>(lane);
    fail<InvalidArgument>("[collective] mpi: there are ", kTags, " lanes, not more, and ", lane, " is none of them");
  }

  std::chrono::milliseconds timeout_;
  MPI_Comm group_;
  int rank_ = 0;
  int size_ = 1;
  std::atomic<bool> aborted_ = false;
};

}  // namespace

std::unique_ptr<Transport> make_mpi(std::chrono::milliseconds timeout) {
  start_mpi();
  MPI_Comm group = MPI_COMM_NULL;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &group), "MPI_Comm_dup");
  return std::make_unique<MpiTransport>(group, timeout);
}

}  // namespace cohort
