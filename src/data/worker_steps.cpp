#include "data/worker_steps.h"

#include <algorithm>
#include <cstring>

#include "base/fail.h"
#include "data/node.h"
#include "data/state.h"

namespace cohort {

namespace {

// What a worker says in place of its number of examples.
constexpr int64_t kEnded = -1;
constexpr int64_t kEndedEmpty = -2;  // and has never had any
constexpr int64_t kFailed = -3;

torch::Tensor bytes_of(const Example& example) {
  IteratorState state;
  state.tree = save_element({.example = example}, state.tensors);
  const std::string text = to_bytes(state);
  torch::Tensor bytes = torch::empty({static_cast<int64_t>(text.size())}, torch::kByte);
  std::memcpy(bytes.data_ptr(), text.data(), text.size());
  return bytes;
}

Example example_of(const torch::Tensor& bytes) {
  const std::string text(static_cast<const char*>(bytes.data_ptr()), static_cast<std::size_t>(bytes.numel()));
  const IteratorState state = from_bytes(text, "the shape of another worker's input");
  return restore_element(state.tree, state.tensors).example;
}

int64_t examples_in(const Shares& shares) {
  int64_t total = 0;
  for (const Example& share : shares) total += share.size();
  return total;
}

}  // namespace

std::optional<WorkerSteps::Step> WorkerSteps::next(const std::function<std::optional<Shares>()>& own, int replicas,
                                                   int64_t flags) {
  for (raised_ = 0;; flags = 0) {
    std::optional<Shares> shares;
    std::exception_ptr error;
    try {
      if (!ended_) shares = own();
    } catch (...) {
      error = std::current_exception();
    }
    ended_ = !shares;
    if (shares) template_ = shares->front().rows(0, 0);
    const int64_t end = template_.x.defined() ? kEnded : kEndedEmpty;
    const int64_t mine = error ? kFailed : shares ? examples_in(*shares) : end;

    int64_t total = 0;
    bool all_ended = true;
    bool someone_learns = false;
    const auto said = world_.gather_numbers("next step of a distributed input", {mine, flags});
    if (error) std::rethrow_exception(error);
    for (std::size_t rank = 0; rank < said.size(); ++rank) {
      const auto [count, raised] = said[rank];
      if (count == kFailed) {
        fail<Unavailable>("[data] the input of ", world_.rank_name(static_cast<int>(rank)),
                          " has failed; its own log says how");
      }
      raised_ |= raised;
      total += std::max<int64_t>(count, 0);
      all_ended = all_ended && count < 0;
      someone_learns = someone_learns || count == kEndedEmpty;
    }
    if (all_ended) return std::nullopt;
    if (someone_learns) learn_template();
    if (total == 0) continue;  // nobody's turn, with more examples to come
    if (!shares) shares.emplace(static_cast<std::size_t>(replicas), template_);
    return Step{std::move(*shares), total};
  }
}

void WorkerSteps::learn_template() {
  const torch::Tensor mine = template_.x.defined() ? bytes_of(template_.to(torch::kCPU)) : torch::empty({0}, torch::kByte);
  for (const torch::Tensor& other : world_.all_gather(mine)) {
    if (!template_.x.defined() && other.numel() > 0) template_ = example_of(other);
  }
}

}  // namespace cohort
