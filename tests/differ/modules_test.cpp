// Random modules, rules, strategies and shares in a custom training loop, in memory that is NaN until it is written,
// against the same module trained by LibTorch alone, or by one device where LibTorch lacks the rule.
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <memory>
#include <optional>

#include "tests/differ/net.h"
#include "tests/equivalence/runs.h"
#include "tests/support/poisoned_allocator.h"

namespace cohort::differ::modules_test {
namespace {

using equivalence::Rule;
using torch::Tensor;
using Parameters = std::vector<Tensor>;

// A rule, and LibTorch's own form of it where there is one.
struct RuleRow {
  Rule rule;
  std::function<std::unique_ptr<torch::optim::Optimizer>(const Parameters&)> libtorch = nullptr;
};

template <typename Theirs, typename Options>
RuleRow by_libtorch(const std::string& name, const Optimizer& ours, const Options& options) {
  return {{name, [=] { return ours; }}, [=](const Parameters& all) { return std::make_unique<Theirs>(all, options); }};
}

// Rules that divide by the size of a gradient or take its sign make much of a rounding error: they are left to
// tests/equivalence.
bool is_steady(const std::string& name) {
  for (const char* other : {"lion", "lamb", "lars", "adafactor"}) {
    if (name.find(other) != std::string::npos) return false;
  }
  return true;
}

// Returns whether an update is proportional to the gradient. Other rules divide by the size of the gradient plus a
// small epsilon. A gradient that is only rounding error, as of a norm before another norm, then changes a weight by up
// to 1e-7.
bool is_linear(const std::string& name) {
  for (const char* beginning :
       {"libtorch_sgd", "libtorch_nesterov", "libtorch_dampened", "sgd", "momentum", "nesterov"}) {
    if (name.starts_with(beginning)) return true;
  }
  return false;
}

const std::vector<RuleRow>& rule_rows() {
  static const std::vector<RuleRow> list = [] {
    constexpr auto kTorch = Formulation::kTorch;
    namespace optim = torch::optim;
    std::vector<RuleRow> all = {
        by_libtorch<optim::SGD>("libtorch_sgd", SGD({.learning_rate = 0.1}), optim::SGDOptions(0.1)),
        by_libtorch<optim::SGD>("libtorch_nesterov",
                                SGD({.learning_rate = 0.05,
                                     .momentum = 0.9,
                                     .nesterov = true,
                                     .weight_decay = 1e-2,
                                     .formulation = kTorch}),
                                optim::SGDOptions(0.05).momentum(0.9).nesterov(true).weight_decay(1e-2)),
        by_libtorch<optim::SGD>("libtorch_dampened",
                                SGD({.learning_rate = 0.05, .momentum = 0.9, .dampening = 0.2, .formulation = kTorch}),
                                optim::SGDOptions(0.05).momentum(0.9).dampening(0.2)),
        by_libtorch<optim::Adam>(
            "libtorch_adam",
            Adam({.learning_rate = 0.01, .epsilon = 1e-6, .weight_decay = 1e-2, .formulation = kTorch}),
            optim::AdamOptions(0.01).eps(1e-6).weight_decay(1e-2)),
        by_libtorch<optim::Adam>("libtorch_amsgrad",
                                 Adam({.learning_rate = 0.01, .epsilon = 1e-6, .amsgrad = true, .formulation = kTorch}),
                                 optim::AdamOptions(0.01).eps(1e-6).amsgrad(true)),
        by_libtorch<optim::AdamW>(
            "libtorch_adamw",
            AdamW({.learning_rate = 0.01, .epsilon = 1e-6, .weight_decay = 0.1, .formulation = kTorch}),
            optim::AdamWOptions(0.01).eps(1e-6).weight_decay(0.1)),
        by_libtorch<optim::Adagrad>(
            "libtorch_adagrad",
            Adagrad({.learning_rate = 0.05,
                     .initial_accumulator_value = 0.1,
                     .epsilon = 1e-6,
                     .lr_decay = 0.02,
                     .formulation = kTorch}),
            optim::AdagradOptions(0.05).lr_decay(0.02).initial_accumulator_value(0.1).eps(1e-6)),
    };
    for (const Rule& rule : equivalence::rules()) {
      if (is_steady(rule.name)) all.push_back({rule});
    }
    return all;
  }();
  return list;
}

struct Batch {
  int64_t size = 1;
  std::vector<int64_t> cuts;  // parts in a thousand of the batch where a share may end
};

// Options of the gradients, and the same computed with LibTorch's tensors.
struct Treatment {
  enum Clip { kNone, kValue, kNorm, kGlobalNorm } clip = kNone;
  double limit = 0.0;
  double l2 = 0.0;
  double loss_scale = 0.0;

  std::string text() const {
    static const char* const names[] = {"no clip", "clipvalue", "clipnorm", "global_clipnorm"};
    return c10::str(names[clip], " ", limit, ", l2 ", l2, ", loss scale ", loss_scale);
  }
  // Keeps the clipping that a rule already has. No row with a LibTorch form has any.
  GradientOptions on(GradientOptions gradient) const {
    const bool clips = gradient.clipvalue > 0 || gradient.clipnorm > 0 || gradient.global_clipnorm > 0;
    if (clip == kValue && !clips) gradient.clipvalue = limit;
    if (clip == kNorm && !clips) gradient.clipnorm = limit;
    if (clip == kGlobalNorm && !clips) gradient.global_clipnorm = limit;
    if (l2 > 0) gradient.l2 = l2;
    if (loss_scale > 0 && !gradient.loss_scale) gradient.loss_scale_factor = loss_scale;
    return gradient;
  }
  void on(const Parameters& parameters) const {
    const torch::NoGradGuard none;
    double squares = 0.0;
    for (const Tensor& parameter : parameters) squares += parameter.grad().square().sum().item<double>();
    for (const Tensor& parameter : parameters) {
      Tensor gradient = parameter.grad();
      const double norm = clip == kNorm ? gradient.norm().item<double>() : std::sqrt(squares);
      if (clip == kValue) gradient.clamp_(-limit, limit);
      if ((clip == kNorm || clip == kGlobalNorm) && norm > limit) gradient.mul_(limit / norm);
      gradient.add_(parameter, l2);
    }
  }
};

Treatment random_treatment(Random& random) {
  Treatment made;
  made.clip = static_cast<Treatment::Clip>(random.between(0, 3));
  if (made.clip != Treatment::kNone) made.limit = 0.01 * static_cast<double>(random.between(1, 60));
  if (random.once_in(3)) made.l2 = 0.02;
  if (random.once_in(3)) made.loss_scale = 1 << random.between(1, 10);
  return made;
}

struct ModuleRecipe {
  ModuleRecipe() = default;
  explicit ModuleRecipe(Random& random)
      : seed(random.between(1, 1'000'000)),
        rule(random.between(0, static_cast<int64_t>(rule_rows().size()) - 1)),
        strategy(random.between(0, static_cast<int64_t>(equivalence::cases().size()) - 1)),
        accumulation(random.once_in(4) ? random.between(2, 3) : 1),
        treatment(random_treatment(random)) {
    net.input = random_input(random);
    for (int64_t parts = random.between(0, 6); parts > 0; --parts) net.parts.push_back(random_part(random));
    for (int64_t left = random.between(1, 3) * accumulation; left > 0; --left) {
      Batch batch{random.between(1, 9), {}};
      for (int cut = 0; cut < 3; ++cut) batch.cuts.push_back(random.between(0, 1000));
      batches.push_back(batch);
    }
  }

  std::string difference() const;
  std::vector<ModuleRecipe> simpler() const;
  std::string text() const;

  int64_t seed = 1;
  int64_t rule = 0;
  int64_t strategy = 0;
  int64_t accumulation = 1;
  Treatment treatment;
  NetSpec net;
  std::vector<Batch> batches;

 private:
  Tensor alone() const;
  Tensor trained(const Strategy& used, bool plain) const;
  std::vector<Example> data() const;
  PerReplica<Example> shares(const Example& batch, const Batch& cut, int replicas) const;
  Optimizer our_rule() const;
};

std::string ModuleRecipe::text() const {
  std::string all = c10::str("  seed of the weights ", seed, ", rule ", rule_rows().at(rule).rule.name, ", strategy ",
                             equivalence::cases().at(strategy).name, ", accumulation ", accumulation, "\n  ",
                             treatment.text(), "\n  ", net.input.text(), "\n");
  for (const Part& part : net.parts) all += "  " + part.text() + "\n";
  for (const Batch& batch : batches) {
    all += c10::str("  batch of ", batch.size, ", cut at ", c10::Join(" ", batch.cuts), "\n");
  }
  return all;
}

std::vector<ModuleRecipe> ModuleRecipe::simpler() const {
  std::vector<ModuleRecipe> all;
  const auto with = [&](const std::function<void(ModuleRecipe&)>& change) {
    ModuleRecipe next = *this;
    change(next);
    if (next.text() != text()) all.push_back(std::move(next));
  };
  for (std::size_t i = 0; i < net.parts.size(); ++i) {
    with([i](ModuleRecipe& r) { r.net.parts.erase(r.net.parts.begin() + static_cast<int64_t>(i)); });
  }
  with([](ModuleRecipe& r) { r.strategy = 0; });
  with([](ModuleRecipe& r) { r.rule = 0; });
  with([](ModuleRecipe& r) { r.accumulation = 1; });
  with([](ModuleRecipe& r) { r.treatment.clip = Treatment::kNone, r.treatment.limit = 0.0; });
  with([](ModuleRecipe& r) { r.treatment.l2 = 0.0; });
  with([](ModuleRecipe& r) { r.treatment.loss_scale = 0.0; });
  if (batches.size() > 1) with([](ModuleRecipe& r) { r.batches.pop_back(); });
  with([](ModuleRecipe& r) { r.net.input.height = 1; });
  with([](ModuleRecipe& r) { r.net.input.width = 1; });
  with([](ModuleRecipe& r) { r.net.input.channels_last = r.net.input.sparse = false; });
  for (std::size_t i = 0; i < batches.size(); ++i) {
    with([i](ModuleRecipe& r) { r.batches[i].size = 1; });
  }
  for (std::size_t i = 0; i < net.parts.size(); ++i) {
    with([i](ModuleRecipe& r) { r.net.parts[i].width = 1; });
    with([i](ModuleRecipe& r) { r.net.parts[i].grouped = false; });
    with([i](ModuleRecipe& r) { r.net.parts[i].in_place = false; });
    with([i](ModuleRecipe& r) { r.net.parts[i].channels_last = false; });
    with([i](ModuleRecipe& r) { r.net.parts[i].frozen = false; });
    with([i](ModuleRecipe& r) { r.net.parts[i].dilation = 1; });
    with([i](ModuleRecipe& r) { r.net.parts[i].kernel[0] = r.net.parts[i].kernel[1] = 1; });
  }
  return all;
}

std::vector<Example> ModuleRecipe::data() const {
  torch::manual_seed(seed + 1);
  std::vector<Example> all;
  for (const Batch& batch : batches) {
    all.push_back({.x = net.input.draw(batch.size, torch::kDouble),
                   .y = torch::randint(kNetClasses, {batch.size}, torch::kLong)});
  }
  return all;
}

PerReplica<Example> ModuleRecipe::shares(const Example& batch, const Batch& cut, int replicas) const {
  std::vector<int64_t> ends;
  for (int replica = 0; replica + 1 < replicas; ++replica) {
    ends.push_back(batch.size() * cut.cuts[static_cast<std::size_t>(replica) % cut.cuts.size()] / 1000);
  }
  std::sort(ends.begin(), ends.end());
  ends.push_back(batch.size());
  std::vector<Example> all;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    all.push_back(batch.rows(begin, end));
    begin = end;
  }
  return PerReplica<Example>(all);
}

Optimizer ModuleRecipe::our_rule() const {
  const Optimizer rule_alone = rule_rows().at(rule).rule.make();
  GradientOptions gradient = treatment.on(rule_alone.gradient());
  gradient.gradient_accumulation_steps = accumulation;
  return rule_alone.with_gradient(gradient);
}

Tensor flat(const torch::nn::Module& module) {
  std::vector<Tensor> all;
  for (const auto& parameter : module.named_parameters()) all.push_back(parameter->detach().reshape({-1}).clone());
  return torch::cat(all);
}

// Trains by LibTorch, gradients averaged over `accumulation` batches.
Tensor ModuleRecipe::alone() const {
  torch::manual_seed(seed);
  Net module(net, /*plain=*/true);
  Parameters trained_ones;
  for (const Tensor& parameter : module->parameters()) {
    if (parameter.requires_grad()) trained_ones.push_back(parameter);
  }
  const auto optimizer = rule_rows().at(rule).libtorch(trained_ones);
  int64_t calls = 0;
  for (const Example& batch : data()) {
    if (calls % accumulation == 0) {
      for (Tensor& parameter : trained_ones) parameter.mutable_grad() = torch::zeros_like(parameter);
    }
    (torch::nn::functional::cross_entropy(module->forward(batch.x.contiguous()), batch.y) / accumulation).backward();
    if (++calls % accumulation != 0) continue;
    treatment.on(trained_ones);
    optimizer->step();
  }
  return flat(*module);
}

Tensor ModuleRecipe::trained(const Strategy& used, bool plain) const {
  NetSpec spec = net;
  const int replicas = used.num_local_replicas();
  const std::vector<Example> all = data();
  // LibTorch 1.13 cannot convolve an empty batch with weights whose channels are last.
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const Example& share : shares(all[i], batches[i], replicas)) {
      for (Part& part : spec.parts) part.channels_last = part.channels_last && share.size() > 0;
    }
  }
  // Sharded gradients are dense.
  const bool sharded = equivalence::cases().at(strategy).name.find("stage") != std::string::npos;
  if (plain || sharded) spec.input.sparse = false;
  auto module = used.mirror([&] {
    torch::manual_seed(seed);
    return Net(spec, plain);
  });
  auto optimizer = used.optimizer(module, our_rule());
  for (std::size_t i = 0; i < all.size(); ++i) {
    used.run(
        [&](Replica& replica, const Example& share) {
          const auto each = torch::nn::functional::cross_entropy(
              module[replica]->forward(share.x), share.y,
              torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
          optimizer[replica].minimize(replica.global_mean(each));
        },
        shares(all[i], batches[i], replicas));
  }
  return flat(*module.copies()[0]);
}

std::string ModuleRecipe::difference() const {
  try {
    const bool libtorch = rule_rows().at(rule).libtorch != nullptr;
    const Tensor wanted = libtorch ? alone() : trained(OneDeviceStrategy("/CPU:0"), /*plain=*/true);
    const Tensor got = trained(equivalence::cases().at(strategy).make(), /*plain=*/false);
    const double far = ((got - wanted).abs() / (1 + wanted.abs())).max().item<double>();
    const double most = is_linear(rule_rows().at(rule).rule.name) ? 1e-9 : 1e-6;
    return far < most ? "" : c10::str("differs by ", far, " from ", libtorch ? "LibTorch" : "one device");
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
}

TEST(Differ, RandomModules) {
  testing::PoisonedAllocator::install();
  torch::set_num_threads(1);
  expect_no_difference<ModuleRecipe>(200);
}

}  // namespace
}  // namespace cohort::differ::modules_test
