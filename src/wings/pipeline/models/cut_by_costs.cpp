// Where a pipeline cuts a model whose blocks differ. The model is called once, within a call for a microbatch that
// begins no chunk and counts the products between two places.
#include "wings/pipeline/models/cut_by_costs.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>

#include <string_view>
#include <utility>

#include "base/fail.h"
#include "device/host_random.h"
#include "strategy/context.h"
#include "strategy/replica_scope.h"
#include "wings/pipeline/strategy/absent_operations.h"
#include "wings/pipeline/train/pipeline_cut.h"

namespace cohort {

namespace {

// The time of a norm and an activation for a number, forward and backward, in products.
constexpr double kProductsOfANumber = 40.0;

// Returns the products of an operation; below 0: it is none of those that count.
double products_of(std::string_view operation, const std::vector<c10::IValue>& arguments, const torch::Tensor& result) {
  const auto size = [&](std::size_t i, int64_t dim) { return arguments[i].toTensor().size(dim); };
  const auto numbers = static_cast<double>(result.numel());
  if (operation == "aten::mm") return numbers * static_cast<double>(size(0, 1));
  if (operation == "aten::addmm") return numbers * static_cast<double>(size(1, 1));
  if (operation == "aten::bmm") return numbers * static_cast<double>(size(0, 2));
  if (operation != "aten::convolution") return -1.0;
  constexpr std::size_t kTransposed = 6;
  const torch::Tensor weight = arguments[1].toTensor();
  const double each = static_cast<double>(weight.numel()) / static_cast<double>(weight.size(0));
  return each * (arguments[kTransposed].toBool() ? static_cast<double>(arguments[0].toTensor().numel()) : numbers);
}

// The costs of a model's parts.
class CostsOfPlaces final : public ReplicaScope {
 public:
  CostsOfPlaces() : outer_(std::exchange(thread_context().replica_scope, this)) {
    install_absent_kernel();
    hand_over_operations(true);
  }
  CostsOfPlaces(const CostsOfPlaces&) = delete;
  CostsOfPlaces& operator=(const CostsOfPlaces&) = delete;
  ~CostsOfPlaces() override {
    hand_over_operations(false);
    thread_context().replica_scope = outer_;
  }

  // Returns the places in the order in which the model came through them.
  const std::vector<std::string>& names() const { return names_; }
  // Returns the costs of what comes before the first place, and behind each.
  const std::vector<double>& costs() const { return costs_; }

  bool counts() const override { return true; }
  void count(std::string_view operation, const std::vector<c10::IValue>& arguments,
             const torch::Tensor& result) override {
    const double products = products_of(operation, arguments, result);
    if (products >= 0.0) costs_.back() += products + kProductsOfANumber * static_cast<double>(result.numel());
  }
  bool begins_at(std::string_view name) override {
    names_.emplace_back(name);
    costs_.push_back(0.0);
    return false;
  }
  int64_t examples() const override { return -1; }
  at::Generator& generator() override { return generator_; }
  Communicator& group(std::string_view axis) override {
    fail<FailedPrecondition>("[pipeline] the model communicates along \"", axis, "\" where its costs are counted");
  }
  std::vector<torch::Tensor> at_cut(const std::vector<torch::Tensor>& values) override { return values; }
  void minimize(LaterStep /*step*/) override {}
  void after_step(std::function<void(const Replica&)> /*act*/) override {}
  bool elsewhere() const override { return false; }
  void note_use(const torch::Tensor& /*tensor*/) override {}
  void note_change(const torch::Tensor& /*tensor*/) override {}

 private:
  ReplicaScope* outer_;
  at::Generator generator_ = make_host_generator(0);
  std::vector<std::string> names_;
  std::vector<double> costs_ = {0.0};
};

}  // namespace

std::vector<std::string> cut_by_costs(LayerModule& model, const torch::Tensor& x, int chunks) {
  CostsOfPlaces places;
  {
    const torch::NoGradGuard no_grad;
    const bool training = model.is_training();
    model.eval();
    model.forward(x);
    model.train(training);
  }
  const std::size_t most = places.costs().size();
  if (chunks < 1 || static_cast<std::size_t>(chunks) > most) {
    fail<InvalidArgument>("[layouts] the model comes through ", most - 1, " places where a chunk may begin (",
                          c10::Join(", ", places.names()), "), so that it has no ", chunks, " chunks, 1 to ", most,
                          " would fit");
  }
  std::vector<std::string> cut;
  for (const std::size_t first : cut_by_cost(places.costs(), static_cast<std::size_t>(chunks))) {
    cut.push_back(places.names()[first - 1]);
  }
  return cut;
}

}  // namespace cohort
