// Sums that go on beside backward, on cards that stand in: their sums are made late, by other threads, so that a step
// that does not wait for them has other numbers than one device.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <atomic>
#include <mutex>

#include "cohort/cohort.h"
#include "device/backend.h"
#include "tests/equivalence/runs.h"
#include "tests/gpu/cards.h"
#include "tests/gpu/meeting_link.h"
#include "tests/gpu/stand_in_streams.h"

namespace cohort::beside_test {
namespace {

using namespace gpu;

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Buckets of one or a few parameters.
Strategy in_buckets(const std::vector<std::string>& devices, const ExchangeOptions& exchange) {
  return MirroredStrategy({.devices = devices, .exchange = exchange});
}

// Layers that are used in another order than that in which they lie, one twice, one not at all.
class CrossedImpl : public torch::nn::Module {
 public:
  CrossedImpl()
      : last_(register_module("last", torch::nn::Linear(16, equivalence::kClasses))),
        unused_(register_module("unused", torch::nn::Linear(3, 3))),
        twice_(register_module("twice", torch::nn::Linear(16, 16))),
        first_(register_module("first", torch::nn::Linear(equivalence::kFeatures, 16))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return last_->forward(twice_->forward(twice_->forward(first_->forward(x).tanh()).tanh()));
  }

 private:
  torch::nn::Linear last_;
  torch::nn::Linear unused_;
  torch::nn::Linear twice_;
  torch::nn::Linear first_;
};
TORCH_MODULE(Crossed);

struct Placing {
  const char* name;
  std::function<Strategy()> make;
};

std::vector<Placing> placings() {
  return {
      {"cards", [] { return in_buckets(on_cards(2), {.bytes_per_pack = 64}); }},
      {"parts_of_a_card", [] { return in_buckets(parts_of_one_card(), {.bytes_per_pack = 1500}); }},
      {"packs", [] { return in_buckets(two_replicas_a_card(), {.num_packs = 5}); }},
      {"linked", [] { return linked(on_cards(2)); }},
      {"linked_parts", [] { return linked(two_replicas_a_card()); }},
  };
}

class Beside : public ::testing::TestWithParam<Placing> {};

torch::Tensor weights_after(const Strategy& strategy, const Optimizer& rule) {
  return equivalence::weights_after(strategy, rule, {}, [] { return Crossed(); });
}

TEST_P(Beside, TrainsAsOneDevice) {
  COHORT_NEEDS_THE_STAND_IN();
  const std::vector<Optimizer> rules = {
      SGD({.learning_rate = 0.05, .momentum = 0.9}),
      LAMB({.learning_rate = 0.01, .gradient = {.clipnorm = 0.2}}),
      Adam({.learning_rate = 0.01, .gradient = {.global_clipnorm = 0.1, .loss_scale = LossScale{}}}),
  };
  for (const Optimizer& rule : rules) {
    const torch::Tensor alone = weights_after(OneDeviceStrategy("/CPU:0"), rule);
    const torch::Tensor beside = weights_after(GetParam().make(), rule);
    EXPECT_LT(equivalence::distance(alone, beside), 1e-9) << rule.name();
    EXPECT_TRUE(torch::equal(beside, weights_after(GetParam().make(), rule))) << rule.name();
  }
}

INSTANTIATE_TEST_SUITE_P(All, Beside, ::testing::ValuesIn(placings()),
                         [](const auto& info) { return info.param.name; });

// What is late changes nothing, and neither does whether sums are made during backward or after it.
TEST(BesideBackward, LateSumsAreWaitedFor) {
  COHORT_NEEDS_THE_STAND_IN();
  const auto rule = Adam({.learning_rate = 0.01});
  const torch::Tensor after = weights_after(
      in_buckets(on_cards(2), {.cross_device_ops = "reduction_to_one_device", .bytes_per_pack = 64}), rule);
  const Late late(milliseconds(1));
  EXPECT_TRUE(torch::equal(after, weights_after(in_buckets(on_cards(2), {.bytes_per_pack = 64}), rule)));
}

struct Net {
  Strategy strategy;
  Mirrored<torch::nn::Sequential> net;
  MirroredOptimizer optimizer;
};

Net small_net(const Strategy& strategy) {
  const auto net = strategy.mirror([] {
    torch::nn::Sequential made;
    for (int i = 0; i < 4; ++i) made->push_back(torch::nn::Linear(8, 8));
    for (auto& parameter : made->parameters()) parameter.set_data(torch::full_like(parameter, 0.1));
    return made;
  });
  return {strategy, net, strategy.optimizer(net, SGD({.learning_rate = 0.1, .momentum = 0.5}))};
}

// A step in which `hook` is called with the replica when backward has come to the first layer.
void step(const Net& training, const std::function<void(int)>& hook) {
  training.strategy.run([&](Replica& replica) {
    torch::Tensor x = torch::full({3, 8}, 0.1 * (replica.id() + 1)).to(replica.device()).requires_grad_();
    x.register_hook([&hook, id = replica.id()](const torch::Tensor& gradient) {
      hook(id);
      return gradient;
    });
    training.optimizer[replica].minimize(replica.global_mean(training.net[replica]->forward(x).sum(1)));
  });
}

TEST(BesideBackward, SumsBeginWhileItRuns) {
  COHORT_NEEDS_THE_STAND_IN();
  const Net training = small_net(in_buckets(on_cards(2), {.bytes_per_pack = 64}));
  step(training, [](int) {});
  for (int i = 0; i < 2; ++i) {
    const int64_t before = late_works();
    std::atomic<int> seen = 0;
    step(training, [&](int) {
      for (int wait = 0; wait < 5000 && late_works() == before; ++wait) std::this_thread::sleep_for(milliseconds(1));
      if (late_works() > before) ++seen;
    });
    EXPECT_EQ(seen, 2);
  }
}

// Backward adds to what one that failed has left in the parameters.
void drop_gradients(const Net& training) {
  for (const auto& copy : training.net.copies()) {
    for (torch::Tensor& parameter : copy->parameters()) parameter.mutable_grad().reset();
  }
}

std::vector<torch::Tensor> values(const Net& training) {
  std::vector<torch::Tensor> list;
  for (const auto& parameter : training.net.copies().back()->parameters()) list.push_back(parameter.detach().cpu());
  return list;
}

// A step that fails when some sums are under way, or before one replica has given anything, leaves nothing behind.
TEST(BesideBackward, AStepThatFailedCanBeMadeAgain) {
  COHORT_NEEDS_THE_STAND_IN();
  const auto nothing = [](int) {};
  const Net plain = small_net(in_buckets(on_cards(2), {.bytes_per_pack = 64}));
  for (int i = 0; i < 3; ++i) step(plain, nothing);
  const Late late(milliseconds(5));
  const Net training = small_net(in_buckets(on_cards(2), {.bytes_per_pack = 64}));
  step(training, nothing);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(step(training,
                      [](int id) {
                        if (id == 1) throw std::runtime_error("out of luck");
                      }),
                 std::exception);
    drop_gradients(training);
    EXPECT_THROW(training.strategy.run([&](Replica& replica) {
      if (replica.id() == 0) throw std::runtime_error("nothing came");
      const torch::Tensor x = torch::ones({3, 8}).to(replica.device());
      training.optimizer[replica].minimize(replica.global_mean(training.net[replica]->forward(x).sum(1)));
    }),
                 std::runtime_error);
    step(training, nothing);
  }
  const auto expected = values(plain);
  const auto made = values(training);
  for (std::size_t p = 0; p < expected.size(); ++p) EXPECT_TRUE(torch::equal(made[p], expected[p])) << p;
}

// Nobody outside of a capture may ask for, or wait for, what is noted there.
TEST(LinkedReplicas, PointsOfACaptureAreRefused) {
  COHORT_NEEDS_THE_STAND_IN();
  const auto streams = make_late_streams(1);
  const torch::Device card(kCard, 0);
  const auto graph = backend_of(card).make_graph(card, {});
  graph->begin();
  const PointPtr captured = streams->mark(0);
  graph->end();
  EXPECT_THROW((void)captured->reached(), std::runtime_error);
  EXPECT_THROW(captured->wait(card), std::runtime_error);
  EXPECT_TRUE(streams->mark(0)->reached());
}

// What replicas reduce and gather themselves, and with it synchronised batch norms, goes over the same link.
TEST(LinkedReplicas, ReduceAndGatherOverTheLink) {
  COHORT_NEEDS_THE_STAND_IN();
  const Strategy strategy = linked(on_cards(2));
  MeetingLink::sums = 0;
  MeetingLink::gathers = 0;
  const Late late(milliseconds(2));
  const auto sums = strategy.run([](Replica& replica) {
    const torch::Tensor mine = torch::arange(4, torch::kDouble).view({1, 4}).to(replica.device()) * (replica.id() + 1);
    const torch::Tensor all = replica.all_gather(mine);
    EXPECT_EQ(all.sizes(), c10::IntArrayRef({2, 4}));
    const torch::Tensor ragged = replica.all_gather(torch::ones({replica.id() + 1, 2}).to(replica.device()));
    EXPECT_EQ(ragged.size(0), 3);
    return torch::stack({all.sum(0), replica.all_reduce(ReduceOp::kMean, mine)[0] * 2}).cpu();
  });
  const torch::Tensor expected = torch::arange(4, torch::kDouble) * 3;
  for (std::size_t r = 0; r < 2; ++r) EXPECT_TRUE(torch::equal(sums[r], torch::stack({expected, expected})));
  EXPECT_EQ(MeetingLink::sums, 1);
  EXPECT_EQ(MeetingLink::gathers, 1) << "parts of other sizes are copied";
}

// A card that does not come to a sum is named, and those that wait for it are freed.
TEST(LinkedReplicas, ACardThatDoesNotComeIsNamed) {
  COHORT_NEEDS_THE_STAND_IN();
  std::vector<torch::Device> cards = {torch::Device(kCard, 0), torch::Device(kCard, 1)};
  LinkedSums sums(cards, make_meeting, milliseconds(100));
  const auto busy = make_late_streams(1);
  SumsBeside::Tensors tensors;
  for (const torch::Device card : cards) tensors.push_back({torch::ones({16}).to(card)});
  std::vector<PointPtr> ready = {sums.mark(0)};
  std::mutex held;
  std::unique_lock lock(held);
  busy->begin(0, [&held] { const std::lock_guard until(held); }, {});
  ready.push_back(busy->record(0));
  const SumsBeside::Ends ends = sums.begin("gradients, bucket 3 of 4", tensors, ready);
  std::string error;
  for (int i = 0; i < 5000 && error.empty(); ++i) {
    try {
      sums.require_well();
    } catch (const DeadlineExceeded& late) {
      error = late.what();
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_THAT(error,
              AllOf(HasSubstr("meeting: collective 1 (all_reduce of gradients, bucket 3 of 4, 64 bytes in 1 tensor(s)) "
                              "has taken 100 ms: "),
                    HasSubstr("replica 1 (ve:1) has not come, while it waits on replica 0 (ve:0)")));
  lock.unlock();
  for (const auto& of_rank : ends) of_rank.front()->wait(cards.front());
  EXPECT_THROW((void)sums.begin("more", tensors, {sums.mark(0), sums.mark(1)}), DeadlineExceeded);
}

}  // namespace
}  // namespace cohort::beside_test
