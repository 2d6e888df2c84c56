#include "data/worker_steps.h"

#include <algorithm>
#include <map>

#include "base/columns.h"
#include "base/crc32c.h"
#include "base/deadline.h"
#include "base/error_text.h"
#include "base/fail.h"
#include "base/log.h"
#include "data/node.h"
#include "data/state.h"
#include "device/host_memory.h"

namespace cohort {

namespace {

// A worker says twice its number of examples, and one more where a share of it is empty, with a digest in the upper
// half (OwnStep::digest); or in place of that:
constexpr int64_t kEnded = -1;
constexpr int64_t kEndedEmpty = -2;  // and has never had any
constexpr int64_t kFailed = -3;
constexpr int kCountBits = 32;
constexpr int64_t kCounts = (int64_t{1} << kCountBits) - 1;

torch::Tensor bytes_of(const Example& example) {
  IteratorState state;
  state.tree = save_example(example, state.tensors);
  return tensor_of_text(to_bytes(state));
}

Example example_of(const torch::Tensor& bytes) {
  const std::string text(host_text(bytes));
  const IteratorState state = from_bytes(text, "the shape of another worker's input");
  return restore_example(state.tree, state.tensors);
}

int64_t examples_in(const Shares& shares) {
  int64_t total = 0;
  for (const Example& share : shares) total += share.size();
  return total;
}

bool has_empty(const Shares& shares) {
  return std::any_of(shares.begin(), shares.end(), [](const Example& share) { return share.size() == 0; });
}

// The steps of a worker that is alone are its own, and what it says it hears at once.
class OwnSteps final : public JointSteps {
 public:
  explicit OwnSteps(Own own) : own_(std::move(own)) {}

  std::optional<Step> next(int64_t flags) override {
    raised_ = flags;
    std::optional<OwnStep> step = own_();
    if (!step) return std::nullopt;
    const int64_t total = examples_in(step->shares);
    return Step{.shares = std::move(step->shares), .total = total};
  }

 private:
  Own own_;
};

}  // namespace

int64_t digest_of(const Shares& shares) {
  uint32_t sum = 0;
  for (const Example& share : shares) {
    for_each_column(share, [&](const torch::Tensor& column) {
      if (!column.defined()) return;
      const torch::Tensor dense = column.layout() == torch::kStrided ? column : column.to_dense();
      sum = crc32c(host_bytes(dense.cpu().contiguous()), sum);
    });
  }
  return sum >> 1;
}

std::unique_ptr<JointSteps> make_joint_steps(const StrategyCore& core, JointSteps::Own own, int64_t pass) {
  if (core.workers().ends_alone()) return std::make_unique<OwnSteps>(std::move(own));
  return std::make_unique<WorkerSteps>(core, std::move(own), pass);
}

// Messages under way have to arrive: the other workers have begun the same.
WorkerSteps::~WorkerSteps() {
  if (!begun_ || world_.broken()) return;
  try {
    (void)world_.finish_gather(*begun_);
  } catch (const std::exception& error) {
    log().warn("[data] at the end of a distributed input: {}", error_text(error));
  }
}

std::optional<WorkerSteps::Step> WorkerSteps::next(int64_t flags) {
  if (!begun_) begin(std::exchange(flags, 0));
  std::optional<Step> step = finish();
  const Deadline deadline(core_.plan().exchange.timeout);
  while (step && step->total == 0) {  // nobody's turn, with more examples to come
    if (deadline.passed()) {
      fail<DeadlineExceeded>("[data] ", what_, ": no worker has had an example for ", to_text(deadline.limit()),
                             ", only empty batches");
    }
    begin(std::exchange(flags, 0));
    step = finish();
  }
  if (step) begin(flags);
  return step;
}

void WorkerSteps::begin(int64_t flags) {
  try {
    if (!ended_) held_ = own_();
  } catch (...) {
    error_ = std::current_exception();
  }
  ended_ = !held_;
  if (held_) template_ = held_->shares.front().rows(0, 0);
  const int64_t end = template_.input().defined() ? kEnded : kEndedEmpty;
  int64_t mine = error_ ? kFailed : end;
  if (held_ && !error_) {
    mine = 2 * examples_in(held_->shares) + (has_empty(held_->shares) ? 1 : 0) + (held_->digest << kCountBits);
  }
  begun_ = world_.begin_gather(what_, {mine, flags});
}

std::optional<WorkerSteps::Step> WorkerSteps::finish() {
  const auto said = world_.finish_gather(*std::exchange(begun_, nullptr));
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  Step step;
  bool all_ended = true;
  bool someone_learns = false;
  raised_ = 0;
  std::map<int, int64_t> of_pipelines;
  for (std::size_t rank = 0; rank < said.size(); ++rank) {
    const auto [number, raised] = said[rank];
    if (number == kFailed) {
      fail<Unavailable>("[data] the input of ", world_.rank_name(static_cast<int>(rank)),
                        " has failed; its own log says how");
    }
    raised_ |= raised;
    const auto [first, is_new] = of_pipelines.emplace(core_.pipelines()[rank], number);
    require_same(rank, number, first->second);
    if (!is_new) continue;
    const int64_t count = number < 0 ? number : number & kCounts;
    step.total += std::max<int64_t>(count, 0) / 2;
    step.some_empty = step.some_empty || count < 0 || count % 2 != 0;
    all_ended = all_ended && count < 0;
    someone_learns = someone_learns || count == kEndedEmpty;
  }
  if (all_ended) return std::nullopt;
  if (someone_learns) learn_template();
  if (!held_) held_.emplace(OwnStep{.shares = Shares(core_.share_leaders().size(), template_)});
  step.shares = std::exchange(held_, std::nullopt)->shares;
  return step;
}

void WorkerSteps::require_same(std::size_t rank, int64_t said, int64_t first) const {
  if (said == first) return;
  const auto& pipelines = core_.pipelines();
  const auto leader = std::find(pipelines.begin(), pipelines.end(), pipelines[rank]) - pipelines.begin();
  const auto text = [](int64_t number) {
    return number < 0 ? std::string("no examples") : c10::str((number & kCounts) / 2, " examples");
  };
  fail<FailedPrecondition>("[data] ", world_.rank_name(static_cast<int>(leader)), " and ",
                           world_.rank_name(static_cast<int>(rank)), " take the same share of the batch (",
                           core_.topology().to_string(), "), but have read ", text(first), " and ", text(said),
                           said >= 0 && first >= 0 && (said & kCounts) == (first & kCounts) ? ", of other values" : "",
                           ": their inputs have to be the same, of the same files and seeds");
}

void WorkerSteps::learn_template() {
  const torch::Tensor mine =
      template_.input().defined() ? bytes_of(template_.to(torch::kCPU)) : torch::empty({0}, torch::kByte);
  for (const torch::Tensor& other : world_.all_gather(mine)) {
    if (!template_.input().defined() && other.numel() > 0) template_ = example_of(other);
  }
}

}  // namespace cohort
