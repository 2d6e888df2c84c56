// Where the time of a training step goes: the step, what LibTorch needs for its forward and backward pass without a
// strategy, its matrix products and convolutions alone, and the stacks of the replicas' threads during the step.
#include <unistd.h>

#include <memory>
#include <utility>

#include "bench.h"
#include "cohort/strategy.h"
#include "products.h"
#include "sampler.h"
#include "step.h"

namespace cohort::bench {

namespace {

// The same model and batch as a Step's, without exchange and update.
class Passes {
 public:
  explicit Passes(const std::string& model)
      : net_(make_model(model)),
        x_(make_input(model, batch_per_replica(model))),
        y_(torch::randint(kClasses, {x_.size(0)}, torch::kLong)) {}

  void operator()() {
    for (const torch::Tensor& parameter : net_->parameters()) parameter.mutable_grad() = torch::Tensor();
    torch::nn::functional::cross_entropy(net_->forward(x_), y_).backward();
  }

 private:
  torch::nn::Sequential net_;
  torch::Tensor x_;
  torch::Tensor y_;
};

}  // namespace

void run_profile(const std::string& model, int replicas, double seconds) {
  torch::manual_seed(1);
  const Strategy strategy = make_strategy({.replicas = replicas}, model);
  const auto count = static_cast<std::size_t>(replicas);
  std::vector<pid_t> threads(count);
  std::vector<std::unique_ptr<Passes>> passes(count);
  std::vector<std::vector<ProductCall>> products(count);
  strategy.run([&](Replica& replica) {
    const auto id = static_cast<std::size_t>(replica.id());
    threads[id] = ::gettid();
    passes[id] = std::make_unique<Passes>(model);
    products[id] = products_of([&] { (*passes[id])(); });
  });
  const double bare = median_time(
      seconds, [&] { strategy.run([&](Replica& replica) { (*passes[static_cast<std::size_t>(replica.id())])(); }); });
  const auto alone = [&](void (*make)(const std::vector<ProductCall>&)) {
    return median_time(seconds, [&] {
      strategy.run([&](Replica& replica) { make(products[static_cast<std::size_t>(replica.id())]); });
    });
  };
  const double by_libtorch = alone(&make_again);
  const double as_layers = alone(&make_again_as_layers);
  Step step(strategy, model);
  const double whole = median_time(seconds, [&] { step(); });
  std::cout << "{\"profile\": \"" << model << "\", \"replicas\": " << replicas << ", \"step_us\": " << whole * 1e6
            << ", \"passes_us\": " << bare * 1e6 << ", \"products_us\": " << by_libtorch * 1e6
            << ", \"own_products_us\": " << as_layers * 1e6 << "}\n";
  Sampler sampler(threads);
  for (const double end = now() + seconds; now() < end;) step();
  sampler.finish(std::cout);
}

}  // namespace cohort::bench
