// Gradients that leave for the other workers while backward runs. Results are held to one device in
// tests/equivalence/multi_worker_test.cpp; here is what else there is to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/optimizer.h"
#include "tests/support/workers.h"

namespace cohort::overlapped_test {
namespace {

using ::testing::HasSubstr;
using testing::with_workers;
using testing::WorkersOptions;

constexpr int64_t kWidth = 16;

WorkersOptions group(int replicas) {
  WorkersOptions options{.workers = 2, .replicas = replicas};
  options.exchange.timeout = std::chrono::seconds(60);
  options.communication.bytes_per_pack = 64;
  options.communication.overlap = true;
  options.communication.timeout = std::chrono::seconds(60);
  return options;
}

// Threads share LibTorch's generator; the chief's values count.
Mirrored<torch::nn::Sequential> layers(const Strategy& strategy, int count) {
  return strategy.mirror([&] {
    torch::nn::Sequential made;
    for (int i = 0; i < count; ++i) made->push_back(torch::nn::Linear(kWidth, kWidth));
    for (auto& parameter : made->parameters())
      torch::NoGradGuard(), parameter.set_data(torch::full_like(parameter, 0.1));
    return made;
  });
}

torch::Tensor rows(const Replica& replica) {
  return torch::full({3, kWidth}, 0.1 * (replica.id() + 1));
}

std::vector<torch::Tensor> values(const Mirrored<torch::nn::Sequential>& net) {
  std::vector<torch::Tensor> list;
  for (const auto& parameter : net.copies().back()->parameters()) list.push_back(parameter.detach().clone());
  return list;
}

TEST(OverlappedExchange, MessagesBeginBeforeBackwardEnds) {
  with_workers(group(2), [](const MultiWorkerMirroredStrategy& strategy) {
    const auto net = layers(strategy, 6);
    const auto sgd = strategy.optimizer(net, SGD({.learning_rate = 0.1}));
    EXPECT_TRUE(sgd.exchange_timeline().messages.empty());
    for (int step = 0; step < 3; ++step) {
      strategy.run([&](Replica& replica) {
        torch::Tensor x = rows(replica);
        x.requires_grad_();
        // The first layer's gradient is a while in coming.
        x.register_hook([](const torch::Tensor& gradient) {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          return gradient;
        });
        sgd[replica].minimize(replica.global_mean(net[replica]->forward(x).sum(1)));
      });
      const ExchangeTimeline timeline = sgd.exchange_timeline();
      ASSERT_EQ(timeline.messages.size(), 12);
      EXPECT_GT(timeline.backward, 0.1);
      EXPECT_LT(timeline.messages.front().begin, timeline.backward);
      EXPECT_GT(timeline.hidden(), 0.0);
      double before = 0.0;
      for (const auto& message : timeline.messages) {
        EXPECT_GE(message.begin, std::max(before, message.ready));
        before = message.end;
      }
    }
  });
}

// Layers that the loss does not reach, gradients from before, apply_gradients() on one worker and minimize() on the
// other, gradients in other layouts: the sums are those of one message after backward.
TEST(OverlappedExchange, WhateverComesTheSumsAreTheSame) {
  const auto train = [](const WorkersOptions& options) {
    std::array<std::vector<torch::Tensor>, 2> results;
    with_workers(options, [&](const MultiWorkerMirroredStrategy& strategy) {
      const auto net = layers(strategy, 4);
      const auto sgd = strategy.optimizer(net, SGD({.learning_rate = 0.1, .gradient = {.global_clipnorm = 5.0}}));
      const auto loss_of = [&](Replica& replica, int last) {
        torch::Tensor x = rows(replica);
        for (int layer = 0; layer <= last; ++layer) x = net[replica]->at<torch::nn::LinearImpl>(layer).forward(x);
        return replica.global_mean(x.sum(1));
      };
      strategy.run([&](Replica& replica) { sgd[replica].minimize(loss_of(replica, 1)); });
      strategy.run([&](Replica& replica) {
        loss_of(replica, 3).backward();
        sgd[replica].minimize(loss_of(replica, 2));
      });
      strategy.run([&](Replica& replica) {
        if (strategy.worker_rank() == 0) return sgd[replica].minimize(loss_of(replica, 3));
        std::vector<torch::Tensor> gradients = sgd[replica].gradients(loss_of(replica, 3));
        gradients[0] = gradients[0].t().contiguous().t();
        gradients[2] = gradients[2].to_sparse();
        sgd[replica].apply_gradients(std::move(gradients));
      });
      results[static_cast<std::size_t>(strategy.worker_rank())] = values(net);
    });
    for (std::size_t p = 0; p < results[0].size(); ++p) EXPECT_TRUE(torch::equal(results[0][p], results[1][p])) << p;
    return results[0];
  };
  for (const int replicas : {1, 2}) {
    WorkersOptions one_message = group(replicas);
    one_message.communication.bytes_per_pack = 1 << 20;
    const std::vector<torch::Tensor> expected = train(one_message);
    const std::vector<torch::Tensor> overlapped = train(group(replicas));
    for (std::size_t p = 0; p < expected.size(); ++p) EXPECT_TRUE(torch::equal(overlapped[p], expected[p])) << p;
  }
}

// A part of the loss whose gradient is computed by a backward within the backward.
struct Reentrant : torch::autograd::Function<Reentrant> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& weight) {
    context->save_for_backward({weight});
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const torch::AutoGradMode on(true);
    context->get_saved_variables().front().sum().backward();
    return {gradients.front(), torch::Tensor()};
  }
};

// Returns what each worker's step throws.
std::array<std::string, 2> errors_of(
    int replicas, const std::function<torch::Tensor(Replica&, torch::nn::Sequential, int rank)>& loss) {
  std::array<std::string, 2> errors;
  with_workers(group(replicas), [&](const MultiWorkerMirroredStrategy& strategy) {
    const auto net = layers(strategy, 4);
    try {
      // The other worker may fail before this one has come out of making the optimizer, which is a collective.
      const auto sgd = strategy.optimizer(net, SGD({.learning_rate = 0.1}));
      strategy.run(
          [&](Replica& replica) { sgd[replica].minimize(loss(replica, net[replica], strategy.worker_rank())); });
    } catch (const std::exception& error) {
      errors[static_cast<std::size_t>(strategy.worker_rank())] = error.what();
    }
  });
  return errors;
}

TEST(OverlappedExchange, AGradientThatComesTwiceIsRefused) {
  const auto errors = errors_of(1, [](Replica& replica, torch::nn::Sequential net, int rank) {
    const torch::Tensor y = net->forward(rows(replica)).sum();
    return rank == 0 ? y : Reentrant::apply(y, net->at<torch::nn::LinearImpl>(3).weight);
  });
  EXPECT_THAT(errors[1], HasSubstr("[optimizer] minimize: the gradient of 3.weight comes twice in one backward"));
  EXPECT_THAT(errors[0], HasSubstr("worker 1"));
}

TEST(OverlappedExchange, ABackwardThatFailsHalfwayIsHeardOfByTheOthers) {
  for (const int replicas : {1, 2}) {
    const auto begin = std::chrono::steady_clock::now();
    const auto errors = errors_of(replicas, [](Replica& replica, torch::nn::Sequential net, int rank) {
      torch::Tensor x = rows(replica);
      x.requires_grad_();
      x.register_hook([rank, id = replica.local_id()](const torch::Tensor& gradient) -> torch::Tensor {
        if (rank == 1) throw std::runtime_error("out of luck");
        // One replica is done before the failure is known, the other one after.
        if (id == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
        return gradient;
      });
      return net->forward(x).sum();
    });
    EXPECT_THAT(errors[1], HasSubstr("out of luck"));
    EXPECT_THAT(errors[0], HasSubstr("worker 1"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(40)) << "not at a deadline";
  }
}

}  // namespace
}  // namespace cohort::overlapped_test
