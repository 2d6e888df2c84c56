// Functions on devices that do not record: they run as they are, and signatures, counts, checks and warnings are those
// of every device.
#include "cohort/function.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <torch/torch.h>

#include <sstream>

#include "base/log.h"
#include "cohort/dataset.h"
#include "cohort/distributed_dataset.h"
#include "cohort/error.h"
#include "cohort/strategy.h"
#include "tests/support/errors.h"

namespace cohort {
namespace function_test {
namespace {

using testing::error_of;
using testing::expect_error;

// What is logged while it lives.
class Logged {
 public:
  Logged() : sink_(std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)) { log().sinks().push_back(sink_); }
  Logged(const Logged&) = delete;
  Logged& operator=(const Logged&) = delete;
  ~Logged() { std::erase(log().sinks(), sink_); }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  spdlog::sink_ptr sink_;
};

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(FunctionTest, GivesWhatTheFunctionGives) {
  const torch::Tensor w = torch::full({2}, 3.0).requires_grad_();
  const auto scaled = function([&](const torch::Tensor& x, double by) { return x * w * by; }, {.name = "scaled"});
  const torch::Tensor y = scaled(torch::ones({2}), 2.0);
  EXPECT_TRUE(y.equal(torch::full({2}, 6.0)));
  y.sum().backward();
  EXPECT_TRUE(w.grad().equal(torch::full({2}, 2.0)));
  const auto nothing = function([&] { w.mutable_grad().reset(); });
  nothing();
  EXPECT_FALSE(w.grad().defined());
}

// A function around Strategy::run() and reduce(), as the tutorials have it.
TEST(FunctionTest, TakesAndReturnsPerReplicaValues) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto sum = [&](const auto& batch) {
    return strategy.reduce(ReduceOp::kSum, strategy.run([](const Example& share) { return share.x.sum(); }, batch));
  };
  const auto of_batch = function([&](const GlobalBatch& batch) { return sum(batch); }, {.name = "of_batch"});
  double total = 0.0;
  for (const GlobalBatch& batch : strategy.distribute(Dataset::range(10).batch(4))) {
    total += of_batch(batch).item<double>();
  }
  EXPECT_EQ(total, 45.0);
  EXPECT_EQ(of_batch.experimental_get_tracing_count(), 2) << "the last batch is shorter";

  const auto of_examples = function([&](const PerReplica<Example>& examples) { return sum(examples); });
  const auto example = [](double value) { return Example{.x = torch::full({2}, value)}; };
  EXPECT_EQ(of_examples(PerReplica<Example>({example(1), example(3)})).item<double>(), 8.0);

  const auto of_tensors = function([&](const PerReplica<torch::Tensor>& values) {
    return std::pair(strategy.reduce(ReduceOp::kSum, values), values.map([](const auto& each) { return each * 2; }));
  });
  for (const double factor : {1.0, 10.0}) {
    const auto values = strategy.run([&](Replica& replica) { return torch::full({2}, factor * (replica.id() + 1)); });
    const auto [reduced, doubled] = of_tensors(values);
    EXPECT_TRUE(reduced.equal(torch::full({2}, factor * 3.0)));
    EXPECT_TRUE(doubled[1].equal(torch::full({2}, factor * 4.0)));
  }
  EXPECT_EQ(of_tensors.experimental_get_tracing_count(), 1);

  // As large as in the batch, but other replicas have examples beside them.
  const auto size = function([&](const GlobalBatch& batch) { return batch.global_size(); });
  EXPECT_EQ(size(GlobalBatch({example(0), example(0)}, 4)), 4);
  EXPECT_EQ(size(GlobalBatch({example(0), example(0)}, 8)), 8);
  EXPECT_EQ(size.experimental_get_tracing_count(), 2);
  const auto compiled = function([&](const GlobalBatch& batch) { return batch[0].x; }, {.jit_compile = true});
  expect_error<InvalidArgument>([&] { compiled(GlobalBatch({example(0), example(0)}, 4)); }, "per-replica values");
}

TEST(FunctionTest, CountsSignaturesByShapesDtypesAndValues) {
  const auto f = function([](const torch::Tensor& x, auto by) { return x * static_cast<double>(by); }, {.name = "f"});
  EXPECT_EQ(f.experimental_get_tracing_count(), 0);
  f(torch::ones({2}), 2);
  f(torch::zeros({2}), 2);
  EXPECT_EQ(f.experimental_get_tracing_count(), 1);
  f(torch::ones({3}), 2);
  f(torch::ones({2}, torch::kDouble), 2);
  f(torch::ones({2}), 3);
  f(torch::ones({2}), 2.0);
  f(torch::ones({2}), true);
  {
    const torch::NoGradGuard no_grad;
    f(torch::ones({2}), 2);
  }
  EXPECT_EQ(f.signatures(),
            (std::vector<std::string>{"f(f32[2] cpu, 2)", "f(f32[3] cpu, 2)", "f(f64[2] cpu, 2)", "f(f32[2] cpu, 3)",
                                      "f(f32[2] cpu, 2)", "f(f32[2] cpu, true)", "f(f32[2] cpu, 2, no_grad)"}));
  EXPECT_EQ(f.experimental_get_tracing_count(), 7);
}

enum class Mode { kTrain, kTest };

TEST(FunctionTest, TakesListsExamplesTextsAndObjects) {
  const auto f =
      function([](const Example& batch, const std::vector<torch::Tensor>& more, const std::string& how, Mode mode,
                  const std::optional<torch::Tensor>& mask, const std::shared_ptr<torch::nn::Module>& net,
                  const std::pair<std::string, torch::Tensor>& named, const std::map<std::string, torch::Tensor>& all) {
        Example out = batch;
        out.x = batch.x + static_cast<double>(more.size() + all.size()) + named.second;
        return std::make_tuple(out, how, mode == Mode::kTest, mask.has_value(), net != nullptr);
      });
  const auto net = std::make_shared<torch::nn::Module>();
  const torch::Tensor one = torch::ones({2});
  const auto call = [&](std::size_t size, const std::string& how, Mode mode, bool mask,
                        const std::shared_ptr<torch::nn::Module>& module, const std::string& name) {
    return f(Example{.x = one, .inputs = {{name, one}}}, std::vector<torch::Tensor>(size, one), how, mode,
             mask ? std::optional(one) : std::nullopt, module, std::pair(name, one),
             std::map<std::string, torch::Tensor>{{name, one}});
  };
  const auto [out, how, test, mask, there] = call(1, "a", Mode::kTest, false, net, "n");
  EXPECT_TRUE(out.x.equal(torch::full({2}, 4.0)));
  EXPECT_EQ(how, "a");
  EXPECT_TRUE(test && !mask && there);
  call(1, "a", Mode::kTest, false, net, "n");
  EXPECT_EQ(f.experimental_get_tracing_count(), 1);
  call(2, "a", Mode::kTest, false, net, "n");
  call(1, "b", Mode::kTest, false, net, "n");
  call(1, "a", Mode::kTrain, false, net, "n");
  call(1, "a", Mode::kTest, true, net, "n");
  call(1, "a", Mode::kTest, false, std::make_shared<torch::nn::Module>(), "n");
  call(1, "a", Mode::kTest, false, net, "m");
  EXPECT_EQ(f.experimental_get_tracing_count(), 7);
}

TEST(FunctionTest, ReduceRetracingRelaxesSizes) {
  const auto f = function([](const torch::Tensor& x) { return x + 1; }, {.name = "f", .reduce_retracing = true});
  for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7}) f(torch::ones({rows, 3}));
  EXPECT_EQ(f.signatures(), (std::vector<std::string>{"f(f32[1, 3] cpu)", "f(f32[?, 3] cpu)"}));
  f(torch::ones({2, 4}));
  f(torch::ones({2}));
  f(torch::ones({2, 2, 2}));
  EXPECT_EQ(f.signatures().size(), 4U);
  EXPECT_EQ(f.signatures().back(), "f(f32[...] cpu)");
}

TEST(FunctionTest, HoldsToItsInputSignature) {
  const auto f = function([](const Example& batch, const torch::Tensor& scale) { return batch.x * scale; },
                          {.name = "f",
                           .input_signature = {{{.shape = {{kAnySize, 2}}, .name = "x"},
                                                {.shape = std::vector<int64_t>(), .dtype = torch::kDouble}}}});
  for (const int64_t rows : {1, 2, 3}) f(Example{.x = torch::ones({rows, 2})}, torch::tensor(2.0, torch::kDouble));
  EXPECT_EQ(f.signatures(), (std::vector<std::string>{"f(f32[?, 2] cpu, f64[] cpu)"}));
  EXPECT_EQ(error_of<InvalidArgument>([&] {
              f(Example{.x = torch::ones({1, 3})}, torch::ones({}));
            }),
            "[function] f: argument 0.x is f32[1, 3] cpu, but the input_signature wants f32[?, 2] (x)");
  EXPECT_EQ(error_of<InvalidArgument>([&] {
              f(Example{.x = torch::ones({1, 2})}, torch::ones({}));
            }),
            "[function] f: argument 1 is f32[] cpu, but the input_signature wants f64[]");
  expect_error<InvalidArgument>(
      [] { function([](const torch::Tensor& x) { return x; }, {.input_signature = {{{.shape = {{-3}}}}}}); },
      "has the size -3");
}

TEST(FunctionTest, WarnsOfRetracingAsTensorFlowDoes) {
  const Logged logged;
  const auto f = function([](const torch::Tensor& x) { return x + 1; }, {.name = "growing"});
  for (int64_t n = 1; n <= 4; ++n) f(torch::ones({n}));
  EXPECT_EQ(logged.text(), "");
  f(torch::ones({5}));
  EXPECT_EQ(count(logged.text(), "[function] 5 out of the last 5 calls to growing triggered retracing."), 1U);
  EXPECT_EQ(count(logged.text(), "The last time: f32[5] cpu came, and f32[4] cpu before"), 1U) << logged.text();
  for (int64_t n = 6; n <= 20; ++n) f(torch::ones({n}));
  EXPECT_EQ(count(logged.text(), "triggered retracing"), 2U);
}

TEST(FunctionTest, WarnsOfAFunctionThatIsMadeInALoop) {
  const Logged logged;
  for (int i = 0; i < 5; ++i)
    function([](const torch::Tensor& x) { return x - 1; }, {.name = "anew"})(torch::ones({2}));
  EXPECT_EQ(count(logged.text(), "5 out of the last 5 calls to anew triggered retracing"), 1U) << logged.text();
}

TEST(FunctionTest, RunsEagerlyWhenAllFunctionsDo) {
  EXPECT_FALSE(functions_run_eagerly());
  const auto f = function([](const torch::Tensor& x) { return x + 1; }, {.input_signature = {{{.shape = {{2}}}}}});
  run_functions_eagerly(true);
  EXPECT_TRUE(functions_run_eagerly());
  EXPECT_TRUE(f(torch::ones({3})).equal(torch::full({3}, 2.0)));  // nothing is checked or counted
  run_functions_eagerly(false);
  EXPECT_EQ(f.experimental_get_tracing_count(), 0);
  EXPECT_THROW(f(torch::ones({3})), InvalidArgument);
}

TEST(FunctionTest, AConcreteFunctionHasASignatureAndNoProgramHere) {
  const auto f = function([](const torch::Tensor& x, int by) { return x * by; }, {.name = "f"});
  const ConcreteFunction concrete = f.get_concrete_function(TensorSpec{.shape = {{kAnySize, 2}}}, 3);
  EXPECT_EQ(concrete.signature(), "f(f32[?, 2] cpu, 3)");
  expect_error<Unimplemented>([&] { (void)concrete.text(); },
                              "f(f32[?, 2] cpu, 3) has no program: cpu does not record");
  EXPECT_THROW((void)concrete.cost(), Unimplemented);
  std::ostringstream out;
  out << concrete;
  EXPECT_EQ(out.str(), "f(f32[?, 2] cpu, 3)\n");
  f(torch::ones({5, 2}), 3);
  EXPECT_EQ(f.experimental_get_tracing_count(), 1);
}

TEST(FunctionTest, JitCompileIsAnErrorWhereNothingIsCompiled) {
  const auto f = function([](const torch::Tensor& x) { return x + 1; }, {.name = "f", .jit_compile = true});
  EXPECT_EQ(error_of<InvalidArgument>([&] { f(torch::ones({2})); }),
            "[function] f: jit_compile is true, but on cpu nothing is compiled: the device does not record; leave it "
            "unset");
  const auto g = function([](const torch::Tensor& x) { return x + 1; }, {.jit_compile = false});
  EXPECT_NO_THROW(g(torch::ones({2})));
}

TEST(FunctionTest, RunsOnReplicasAsAnyOtherFunction) {
  const MirroredStrategy strategy({.devices = cpu_devices(3)});
  const auto step =
      function([](Replica& replica, const torch::Tensor& x) { return x * (replica.id() + 1); }, {.name = "step"});
  const PerReplica<torch::Tensor> x({torch::ones({2}), torch::ones({2}), torch::ones({2})});
  for (int i = 0; i < 3; ++i) {
    const torch::Tensor sum = strategy.reduce(ReduceOp::kSum, strategy.run(step, x));
    EXPECT_TRUE(sum.equal(torch::full({2}, 6.0)));
  }
  EXPECT_EQ(step.signatures(), (std::vector<std::string>{"step(f32[2] cpu)"}));
  const auto without = function([](const torch::Tensor& y) { return y + 1; });
  EXPECT_TRUE(strategy.run(without, x)[1].equal(torch::full({2}, 2.0)));
}

TEST(FunctionTest, ErrorsOfTheFunctionComeOut) {
  const auto f = function([](const torch::Tensor& x) -> torch::Tensor { throw std::out_of_range("own"); });
  EXPECT_THROW(f(torch::ones({2})), std::out_of_range);
  EXPECT_EQ(f.experimental_get_tracing_count(), 0);
}

}  // namespace
}  // namespace function_test
}  // namespace cohort
