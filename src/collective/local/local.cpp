// Ranks reach each other's memory: each brings its tensors to a meeting, takes from the others' what it needs, and
// parts. Messages are copies that wait in the meeting for their receiver.
#include "collective/local/local.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "base/fail.h"
#include "cohort/trace.h"
#include "collective/checks.h"
#include "collective/work_queues.h"
#include "device/identity.h"

namespace cohort {

namespace {

int detail_of(ReduceOp op) {
  return op == ReduceOp::kMean ? 1 : 0;
}

class Local final : public Communicator {
 public:
  Local(std::shared_ptr<Rendezvous> meeting, CrossDeviceSum sum, int rank)
      : meeting_(std::move(meeting)), sum_(std::move(sum)), rank_(rank) {}

  std::string_view name() const override { return "local"; }
  int rank() const override { return rank_; }
  int size() const override { return meeting_->size(); }

  void all_reduce(std::span<torch::Tensor> tensors, ReduceOp op) override {
    const TraceSpan span("communication", "all_reduce");
    if (size() == 1) return;
    const torch::NoGradGuard no_grad;
    // The sums want contiguous memory; what is not is reduced in a copy.
    std::vector<torch::Tensor> dense;
    for (torch::Tensor& tensor : tensors) {
      require_dense("all_reduce", tensor);
      dense.push_back(tensor.detach().contiguous());
    }
    std::span<torch::Tensor> mine(dense);
    const auto meeting = enter();
    meeting->arrive(rank_, {.what = "all_reduce", .detail = detail_of(op), .tensors = mine}, &mine);
    meeting->finish(rank_, [&] {
      std::vector<std::span<torch::Tensor>> all;
      for (int r = 0; r < size(); ++r) all.push_back(*static_cast<std::span<torch::Tensor>*>(meeting->data(r)));
      sum_.all_reduce(*meeting, rank_, all, op);
    });
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!same_memory(tensors[i], dense[i])) tensors[i].detach().copy_(dense[i]);
    }
  }

  void broadcast(std::span<torch::Tensor> tensors, int root) override {
    const TraceSpan span("communication", "broadcast");
    require_root(*this, root);
    for (const torch::Tensor& tensor : tensors) require_dense("broadcast", tensor);
    if (size() == 1) return;
    const torch::NoGradGuard no_grad;
    const auto meeting = enter();
    meeting->arrive(rank_, {.what = "broadcast", .detail = root, .tensors = tensors}, &tensors);
    meeting->finish(rank_, [&] {
      const auto& from = *static_cast<std::span<torch::Tensor>*>(meeting->data(root));
      if (rank_ == root) return;
      for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].detach().copy_(from[i].detach());
    });
  }

  std::vector<torch::Tensor> all_gather(const torch::Tensor& tensor) override {
    const TraceSpan span("communication", "all_gather");
    const torch::NoGradGuard no_grad;
    require_dense("all_gather", tensor);
    if (size() == 1) return {tensor.detach().clone()};
    torch::Tensor mine = tensor.detach();
    const auto meeting = enter();
    meeting->arrive(rank_, {.what = "all_gather", .tensors = {&mine, 1}, .ragged = true}, &mine);
    std::vector<torch::Tensor> parts;
    meeting->finish(rank_, [&] {
      std::vector<std::span<torch::Tensor>> all;
      for (int r = 0; r < size(); ++r) all.emplace_back(static_cast<torch::Tensor*>(meeting->data(r)), 1);
      if (sum_.all_gather && alike(all)) parts = sum_.all_gather(*meeting, rank_, all);
      if (!parts.empty()) return;
      for (const auto& part : all) {
        parts.push_back(part.front().to(mine.device(), /*non_blocking=*/false, /*copy=*/true));
      }
    });
    return parts;
  }

  torch::Tensor reduce_scatter(const torch::Tensor& tensor, ReduceOp op) override {
    const TraceSpan span("communication", "reduce_scatter");
    require_pieces(*this, tensor);
    const torch::NoGradGuard no_grad;
    if (size() == 1) return tensor.detach().clone(torch::MemoryFormat::Contiguous);
    torch::Tensor mine = tensor.detach();
    const auto meeting = enter();
    meeting->arrive(rank_, {.what = "reduce_scatter", .detail = detail_of(op), .tensors = {&mine, 1}}, &mine);
    torch::Tensor result;
    meeting->finish(rank_, [&] {
      const int64_t rows = tensor.size(0) / size();
      std::vector<torch::Tensor> parts;
      for (int r = 0; r < size(); ++r) {
        parts.push_back(static_cast<torch::Tensor*>(meeting->data(r))->narrow(0, rank_ * rows, rows));
      }
      result = torch::empty_like(parts[static_cast<std::size_t>(rank_)], torch::MemoryFormat::Contiguous);
      sum_.reduce(result, parts, op);
    });
    return result;
  }

  std::vector<torch::Tensor> all_to_all(std::span<const torch::Tensor> parts) override {
    const TraceSpan span("communication", "all_to_all");
    require_parts(*this, parts);
    const torch::NoGradGuard no_grad;
    if (size() == 1) return {parts.front().detach().clone()};
    const auto meeting = enter();
    meeting->arrive(rank_, {.what = "all_to_all", .tensors = parts, .ragged = true}, &parts);
    std::vector<torch::Tensor> own;
    meeting->finish(rank_, [&] {
      for (int r = 0; r < size(); ++r) {
        const torch::Tensor& sent =
            (*static_cast<std::span<const torch::Tensor>*>(meeting->data(r)))[static_cast<std::size_t>(rank_)];
        own.push_back(sent.detach().to(parts.front().device(), /*non_blocking=*/false, /*copy=*/true));
      }
    });
    return own;
  }

  void barrier() override {
    const TraceSpan span("communication", "barrier");
    if (size() == 1) return;
    const auto meeting = enter();
    meeting->arrive(rank_, {.what = "barrier"}, nullptr);
    meeting->depart(rank_);
  }

  void send(const torch::Tensor& tensor, Peer to) override {
    const TraceSpan span("communication", "send");
    require_peer(*this, "send", tensor, to);
    queues_.messages(to.rank, /*sends=*/true).settle();
    const torch::NoGradGuard no_grad;
    meeting_->post(rank_, to.rank, {.tensor = tensor.detach().clone(torch::MemoryFormat::Contiguous), .tag = to.tag});
  }

  void recv(torch::Tensor tensor, Peer from) override {
    const TraceSpan span("communication", "recv");
    require_peer(*this, "recv", tensor, from);
    queues_.messages(from.rank, /*sends=*/false).settle();
    const Letter letter = meeting_->take(from.rank, rank_);
    const std::string came = describe_message(letter.tensor, letter.tag);
    const std::string wanted = describe_message(tensor, from.tag);
    if (came != wanted) {
      fail<FailedPrecondition>("[collective] a message does not match: replica ", meeting_->name(from.rank), " sends ",
                               came, ", replica ", meeting_->name(rank_), " receives ", wanted);
    }
    const torch::NoGradGuard no_grad;
    tensor.detach().copy_(letter.tensor);
  }

  std::unique_ptr<Communicator> split(int color, int key) override;

  void abort(const std::string& reason) override { meeting_->abort(reason); }

 private:
  // The things that a rank brings to a split.
  struct Choice {
    int color = 0;
    int key = 0;
    // The first rank of a color brings the meeting of the new group and the way in which it sums.
    std::shared_ptr<Rendezvous> meeting = nullptr;
    CrossDeviceSum sum = {};
  };

  WorkQueues& queues() override { return queues_; }

  // Returns whether the ranks have brought contiguous tensors of the same shape that is not empty.
  static bool alike(RankTensors all) {
    const torch::Tensor& first = all.front().front();
    return first.numel() > 0 && std::all_of(all.begin(), all.end(), [&](std::span<torch::Tensor> own) {
             return own.front().is_contiguous() && own.front().sizes() == first.sizes();
           });
  }

  // Returns where the ranks meet for this call, after those that were begun before it: asynchronous operations have a
  // meeting of their own, beside what the ranks' own threads do.
  std::shared_ptr<Rendezvous> enter() {
    queues_.collectives().settle();
    return WorkQueue::in_operation() ? meeting_->background() : meeting_;
  }

  std::shared_ptr<Rendezvous> meeting_;
  CrossDeviceSum sum_;
  int rank_;
  WorkQueues queues_;
};

std::unique_ptr<Communicator> Local::split(int color, int key) {
  Choice mine{.color = color, .key = key};
  const auto meeting = enter();
  meeting->arrive(rank_, {.what = "split"}, &mine);
  std::unique_ptr<Communicator> group;
  meeting->finish(rank_, [&] {
    const auto choice_of = [&](int rank) -> Choice& { return *static_cast<Choice*>(meeting->data(rank)); };
    std::vector<int> members;
    for (int r = 0; r < size() && color >= 0; ++r) {
      if (choice_of(r).color == color) members.push_back(r);
    }
    std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return choice_of(a).key < choice_of(b).key; });
    const bool leads = !members.empty() && members.front() == rank_;
    if (leads) {
      mine.meeting = meeting_->branch(members);
      mine.sum = sum_.of_new_group ? sum_.of_new_group() : sum_;
    }
    meeting->sync(rank_);
    if (members.empty()) return;
    const auto self = std::find(members.begin(), members.end(), rank_) - members.begin();
    Choice& first = choice_of(members.front());
    group = std::make_unique<Local>(first.meeting, first.sum, static_cast<int>(self));
  });
  return group;
}

}  // namespace

std::unique_ptr<Communicator> make_local(Rendezvous& meeting, const CrossDeviceSum& sum, int rank) {
  // The pointer does not own: the caller's meeting outlives its communicators.
  return std::make_unique<Local>(std::shared_ptr<Rendezvous>(std::shared_ptr<void>(), &meeting), sum, rank);
}

}  // namespace cohort
