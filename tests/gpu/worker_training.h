// What the tests of gradients between workers with cards train: a small model of two branches, on two workers.
#pragma once

#include <torch/torch.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "cohort/cohort.h"
#include "collective/devices/sums_over_processes.h"
#include "tests/equivalence/runs.h"
#include "tests/gpu/cards.h"

namespace cohort::gpu {

constexpr int kWorkers = 2;

// Two branches, of which odd replicas compute the other one first, so that their gradients come in another order. One
// layer is used twice, one not at all.
class BranchesImpl : public torch::nn::Module {
 public:
  BranchesImpl()
      : left_(register_module("left", torch::nn::Linear(equivalence::kFeatures, 8))),
        unused_(register_module("unused", torch::nn::Linear(3, 3))),
        right_(register_module("right", torch::nn::Linear(equivalence::kFeatures, 8))),
        twice_(register_module("twice", torch::nn::Linear(8, 8))) {
    const torch::NoGradGuard no_grad;
    to(torch::kDouble);
    for (torch::Tensor& p : parameters()) p.copy_(torch::cos(torch::arange(p.numel())).view(p.sizes()) / 4);
  }
  torch::Tensor forward(const torch::Tensor& x, bool other_first) {
    torch::Tensor right;
    if (other_first) right = twice_->forward(right_->forward(x).tanh());
    const torch::Tensor left = twice_->forward(left_->forward(x).tanh());
    if (!other_first) right = twice_->forward(right_->forward(x).tanh());
    return left + right * 2;
  }

 private:
  torch::nn::Linear left_;
  torch::nn::Linear unused_;
  torch::nn::Linear right_;
  torch::nn::Linear twice_;
};
TORCH_MODULE(Branches);

struct Training {
  explicit Training(const Strategy& own, const Optimizer& rule = SGD({.learning_rate = 0.05, .momentum = 0.9}))
      : strategy(own), net(own.mirror([] { return Branches(); })), optimizer(own.optimizer(net, rule)) {}

  // `hook` is called with the replica when backward has come to the input.
  void step(
      int number, const std::function<void(int)>& hook = [](int) {}) const {
    const torch::Tensor all =
        torch::sin(torch::arange(12 * equivalence::kFeatures, torch::kDouble)).view({12, -1}) * (1.0 + 0.1 * number);
    const auto parts = all.chunk(strategy.num_replicas_in_sync());
    strategy.run([&](Replica& replica) {
      torch::Tensor x = parts[static_cast<std::size_t>(replica.id())].to(replica.device()).requires_grad_();
      x.register_hook([&hook, id = replica.id()](const torch::Tensor& gradient) {
        hook(id);
        return gradient;
      });
      const torch::Tensor y = net[replica]->forward(x, replica.id() % 2 == 1);
      optimizer[replica].minimize(replica.global_mean(y.square().sum(1)));
    });
  }

  // Returns the weights, which are the same bits on all replicas here.
  torch::Tensor weights() const {
    std::vector<torch::Tensor> all;
    for (const auto& copy : net.copies()) {
      std::vector<torch::Tensor> flat;
      for (const auto& parameter : copy->parameters()) flat.push_back(parameter.detach().reshape({-1}).cpu());
      all.push_back(torch::cat(flat));
      EXPECT_TRUE(torch::equal(all.front(), all.back())) << "the replicas' copies differ";
    }
    return all.front();
  }

  Strategy strategy;
  Mirrored<Branches> net;
  MirroredOptimizer optimizer;
};

inline torch::Tensor trained(const Strategy& strategy, const Optimizer& rule) {
  const Training training(strategy, rule);
  for (int i = 0; i < 6; ++i) training.step(i);
  return training.weights();
}

using Devices = std::vector<std::vector<std::string>>;  // [worker]

inline Devices a_card_each() {
  const auto cards = on_cards(2);
  return {{cards[0]}, {cards[1]}};
}

// Both workers have a replica on each card.
inline Devices cards_each() {
  return {{"/GPU:0", "/GPU:2"}, {"/GPU:1", "/GPU:3"}};
}

using WeightsOfWorkers = std::array<torch::Tensor, kWorkers>;

inline Optimizer plain_rule() {
  return SGD({.learning_rate = 0.05, .momentum = 0.9});
}

// Every update needs the norm of all sums.
inline Optimizer rule_of_all() {
  return Adam({.learning_rate = 0.01, .gradient = {.global_clipnorm = 0.1, .loss_scale = LossScale{}}});
}

inline torch::Device card_of(int rank) {
  return {kCard, static_cast<c10::DeviceIndex>(rank)};
}

inline std::shared_ptr<SumsBeside> sums_over(ProcessCommunicator& world, std::chrono::milliseconds timeout) {
  return make_sums_over_processes({card_of(world.rank())}, nullptr, world.split_processes(0, world.rank()), timeout);
}

}  // namespace cohort::gpu
