// A generator and a critic that are trained in turns by an optimizer each: under a strategy, and by LibTorch alone.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "cohort/optimizer.h"
#include "cohort/strategy.h"

namespace cohort::equivalence {

struct GanOptions {
  int critic_steps = 1;           // before each step of the generator
  bool gradient_penalty = false;  // of the critic, as in WGAN-GP: a second derivative
  int steps = 4;
  int64_t batch = 12;
  int64_t accumulation = 1;
};

// A GAN, with a name for messages of tests.
struct GanKind {
  const char* name;
  GanOptions options;
};

inline const std::vector<GanKind>& gan_kinds() {
  static const std::vector<GanKind> list = {
      {"one step of the critic", {}},
      {"three steps of the critic", {.critic_steps = 3}},
      {"three steps with a gradient penalty", {.critic_steps = 3, .gradient_penalty = true, .steps = 3}},
      {"averages over two calls", {.critic_steps = 2, .steps = 3, .accumulation = 2}}};
  return list;
}

constexpr double kCriticRate = 0.05;
constexpr double kGeneratorRate = 0.1;

// The weights come from a generator of random numbers of their own: workers that are threads make them at once.
inline torch::nn::Sequential gan_part(int64_t in, int64_t out, uint64_t seed) {
  torch::nn::Sequential part(torch::nn::Linear(in, 6), torch::nn::Tanh(), torch::nn::Linear(6, out));
  part->to(torch::kDouble);
  at::Generator generator = at::detail::createCPUGenerator(seed);
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& each : part->parameters()) {
    each.copy_(torch::randn(each.sizes(), generator, torch::kDouble) * 0.5);
  }
  return part;
}
inline torch::nn::Sequential gan_generator() {
  return gan_part(4, 3, 21);
}
inline torch::nn::Sequential gan_critic() {
  return gan_part(3, 1, 22);
}

// A batch of real examples (x) and of noise (y), of the same number on every call.
inline Example gan_batch(const GanOptions& options, int64_t number) {
  at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(number) + 100);
  return {.x = torch::randn({options.batch, 3}, generator, torch::kDouble),
          .y = torch::randn({options.batch, 4}, generator, torch::kDouble)};
}

// The losses of each example.
inline torch::Tensor critic_losses(torch::nn::Sequential critic, const torch::Tensor& real, const torch::Tensor& fake,
                                   bool gradient_penalty) {
  torch::Tensor each = (critic->forward(fake) - critic->forward(real)).flatten();
  if (!gradient_penalty) return each.tanh();
  const torch::Tensor mixed = (0.3 * real + 0.7 * fake).detach().requires_grad_();
  const torch::Tensor scores = critic->forward(mixed).sum();
  const torch::Tensor slope = torch::autograd::grad({scores}, {mixed}, {}, /*retain_graph=*/true,
                                                    /*create_graph=*/true)[0];
  return each + 10.0 * (slope.norm(2, 1) - 1.0).square();
}

inline std::vector<torch::Tensor> flat_values(const std::vector<std::vector<torch::Tensor>>& parts) {
  std::vector<torch::Tensor> values;
  for (const auto& part : parts) {
    std::vector<torch::Tensor> flat;
    for (const torch::Tensor& each : part) flat.push_back(each.detach().cpu().reshape({-1}).clone());
    values.push_back(torch::cat(flat));
  }
  return values;
}

// Returns the weights of the generator and of the critic.
inline std::vector<torch::Tensor> gan_by_libtorch(const GanOptions& options) {
  torch::nn::Sequential generator = gan_generator();
  torch::nn::Sequential critic = gan_critic();
  torch::optim::SGD of_generator(generator->parameters(), torch::optim::SGDOptions(kGeneratorRate));
  torch::optim::Adam of_critic(critic->parameters(), torch::optim::AdamOptions(kCriticRate));
  int64_t number = 0;
  for (int step = 0; step < options.steps; ++step) {
    for (int i = 0; i < options.critic_steps; ++i) {
      of_critic.zero_grad();
      for (int64_t call = 0; call < options.accumulation; ++call) {
        const Example batch = gan_batch(options, number++);
        const torch::Tensor fake = generator->forward(batch.y).detach();
        (critic_losses(critic, batch.x, fake, options.gradient_penalty).mean() / options.accumulation).backward();
      }
      of_critic.step();
    }
    of_generator.zero_grad();
    for (int64_t call = 0; call < options.accumulation; ++call) {
      const torch::Tensor noise = gan_batch(options, number++).y;
      (-critic->forward(generator->forward(noise)).mean() / options.accumulation).backward();
    }
    of_generator.step();
  }
  return flat_values({generator->parameters(), critic->parameters()});
}

// Does the same under a strategy. Returns the weights of the first replica.
inline std::vector<torch::Tensor> gan_under(const Strategy& strategy, const GanOptions& options) {
  const auto scope = strategy.scope();
  const auto generator = strategy.mirror(gan_generator);
  const auto critic = strategy.mirror(gan_critic);
  const GradientOptions gradient{.gradient_accumulation_steps = options.accumulation};
  const auto of_generator = strategy.optimizer(generator, SGD({.learning_rate = kGeneratorRate, .gradient = gradient}));
  const auto of_critic = strategy.optimizer(
      critic,
      Adam({.learning_rate = kCriticRate, .epsilon = 1e-8, .gradient = gradient, .formulation = Formulation::kTorch}));
  int64_t number = 0;
  const auto dataset_share = [&](const Replica& replica, const Example& batch) {
    const auto replicas = static_cast<int64_t>(strategy.num_replicas_in_sync());
    const int64_t share = batch.size() / replicas;
    return batch.rows(replica.id() * share, (replica.id() + 1) * share).to(replica.device());
  };
  for (int step = 0; step < options.steps; ++step) {
    strategy.run([&](Replica& replica) {
      int64_t next = number;
      for (int64_t i = 0; i < options.critic_steps * options.accumulation; ++i) {
        const Example share = dataset_share(replica, gan_batch(options, next++));
        const torch::Tensor fake = generator[replica]->forward(share.y).detach();
        of_critic[replica].minimize(
            replica.global_mean(critic_losses(critic[replica], share.x, fake, options.gradient_penalty)));
      }
      for (int64_t i = 0; i < options.accumulation; ++i) {
        const Example share = dataset_share(replica, gan_batch(options, next++));
        const torch::Tensor scores = critic[replica]->forward(generator[replica]->forward(share.y)).flatten();
        of_generator[replica].minimize(replica.global_mean(-scores));
      }
    });
    number += (options.critic_steps + 1) * options.accumulation;
  }
  std::vector<std::vector<torch::Tensor>> parts(2);
  for (const auto& [name, value] : generator.state()) parts[0].push_back(value);
  for (const auto& [name, value] : critic.state()) parts[1].push_back(value);
  return flat_values(parts);
}

}  // namespace cohort::equivalence
