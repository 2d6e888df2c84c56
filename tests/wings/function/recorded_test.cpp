// Functions on a device that records, on XLA's plugin for CPUs: recorded once a signature, captures, random streams,
// what is written, the same bits as work that is recorded each time.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "cohort/function.h"
#include "tests/support/errors.h"
#include "tests/support/xla.h"
#include "wings/xla/device/runner.h"
#include "wings/xla/record/recorder.h"

namespace cohort {
namespace recorded_test {
namespace {

using testing::error_of;
using testing::expect_error;
using Tensors = std::vector<torch::Tensor>;

const torch::Device kDevice(torch::kXLA, 0);

torch::Tensor on_device(const torch::Tensor& host) {
  return host.to(kDevice);
}

bool same(const torch::Tensor& a, const torch::Tensor& b) {
  return a.detach().to(torch::kCPU).equal(b.detach().to(torch::kCPU));
}

class RecordedTest : public testing::XlaCpuTest {
 protected:
  void SetUp() override {
    XlaCpuTest::SetUp();
    if (!plugin_) return;
    record::install_recorder({.devices = 2});
    record::set_runner(make_xla_runner(client(2)));
    torch::manual_seed(1);
    record::recording_of(kDevice).manual_seed(1);
  }
  void TearDown() override { record::set_runner(nullptr); }
};

torch::nn::Sequential network() {
  torch::manual_seed(2);
  torch::nn::Sequential net(torch::nn::Linear(6, 8), torch::nn::BatchNorm1d(8), torch::nn::ReLU(),
                            torch::nn::Dropout(0.25), torch::nn::Linear(8, 3));
  for (torch::Tensor& each : net->parameters()) record::move_in_place(each, kDevice);
  for (torch::Tensor& each : net->buffers()) record::move_in_place(each, kDevice);
  return net;
}

TEST_F(RecordedTest, IsCalledOnceASignature) {
  int calls = 0;
  const auto f = function(
      [&](const torch::Tensor& x, double by) {
        ++calls;
        return x * by + 1;
      },
      {.name = "f"});
  for (int i = 0; i < 4; ++i) {
    const torch::Tensor x = torch::randn({3, 2});
    EXPECT_TRUE(same(f(on_device(x), 2.0), x * 2 + 1)) << i;
  }
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(same(f(on_device(torch::ones({3, 2})), 3.0), torch::full({3, 2}, 4.0)));
  EXPECT_TRUE(same(f(on_device(torch::ones({2})), 2.0), torch::full({2}, 3.0)));
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(f.signatures(),
            (std::vector<std::string>{"f(f32[3, 2] xla:0, 2)", "f(f32[3, 2] xla:0, 3)", "f(f32[2] xla:0, 2)"}));
  // A view, and a tensor whose value waits to be computed.
  const torch::Tensor wide = torch::randn({2, 3});
  EXPECT_TRUE(same(f((on_device(wide) + 1).t(), 2.0), (wide + 1).t() * 2 + 1));
  EXPECT_EQ(calls, 3);
}

TEST_F(RecordedTest, ReadsVariablesByReferenceAndKeepsWhatCameFromTheHost) {
  const torch::Tensor w = on_device(torch::ones({2}));
  torch::Tensor host = torch::ones({2});
  double number = 1;
  const auto f = function([&](const torch::Tensor& x) { return x + w + on_device(host) * number; });
  const torch::Tensor x = on_device(torch::zeros({2}));
  EXPECT_TRUE(same(f(x), torch::full({2}, 2.0)));
  {
    const torch::NoGradGuard no_grad;
    w.fill_(5);
  }
  host.fill_(100);
  number = 7;
  EXPECT_TRUE(same(f(x), torch::full({2}, 6.0)));
}

TEST_F(RecordedTest, TellsApartTensorsThatHadTheSameValue) {
  const torch::Tensor w = on_device(torch::ones({2}));
  const torch::Tensor average = w.clone();
  const auto f = function([&](const torch::Tensor& x) {
    w.add_(x);
    average.mul_(0.5).add_(w, 0.5);
    return average - w;
  });
  torch::Tensor host_w = torch::ones({2});
  torch::Tensor host_average = torch::ones({2});
  for (int i = 1; i < 5; ++i) {
    const torch::Tensor x = torch::full({2}, static_cast<double>(i));
    host_w.add_(x);
    host_average.mul_(0.5).add_(host_w, 0.5);
    EXPECT_TRUE(same(f(on_device(x)), host_average - host_w)) << i;
    EXPECT_TRUE(same(w, host_w) && same(average, host_average)) << i;
  }
}

// Takes steps with SGD on a network with batch norm and dropout; through a function, or recorded each time.
Tensors steps(bool through_function, bool resets_first) {
  record::recording_of(kDevice).manual_seed(5);
  torch::nn::Sequential net = network();
  int calls = 0;
  const auto reset = [&] {
    for (torch::Tensor& p : net->parameters()) p.mutable_grad() = torch::Tensor();
  };
  const auto step = function(
      [&](const torch::Tensor& x, const torch::Tensor& y) {
        ++calls;
        if (resets_first) reset();
        const torch::Tensor loss = torch::cross_entropy_loss(net->forward(x), y);
        loss.backward();
        const torch::NoGradGuard no_grad;
        for (torch::Tensor& p : net->parameters()) p.sub_(p.grad(), 0.1);
        if (!resets_first) reset();
        return loss;
      },
      {.name = "step"});
  torch::manual_seed(3);
  Tensors out;
  run_functions_eagerly(!through_function);
  for (int i = 0; i < 6; ++i) {
    const torch::Tensor x = torch::randn({5, 6});
    const torch::Tensor y = torch::randint(3, {5}, torch::kLong);
    const torch::Tensor loss = step(on_device(x), on_device(y));
    if (!through_function) record::recording_of(kDevice).flush();
    out.push_back(loss.detach().to(torch::kCPU));
  }
  run_functions_eagerly(false);
  for (const torch::Tensor& each : net->parameters()) out.push_back(each.detach().to(torch::kCPU));
  for (const torch::Tensor& each : net->buffers()) out.push_back(each.detach().to(torch::kCPU));
  for (const torch::Tensor& each : net->parameters()) {
    if (each.grad().defined()) out.push_back(each.grad().to(torch::kCPU));
  }
  out.push_back(record::recording_of(kDevice).random_state().to(torch::kCPU));
  // Gradients that a call finds from the call before make it record once more.
  EXPECT_EQ(calls, !through_function ? 6 : resets_first ? 2 : 1);
  return out;
}

TEST_F(RecordedTest, TrainsToTheSameBitsAsWhatIsRecordedEachTime) {
  for (const bool resets_first : {false, true}) {
    const Tensors each_time = steps(false, resets_first);
    const Tensors once = steps(true, resets_first);
    ASSERT_EQ(once.size(), each_time.size());
    for (std::size_t i = 0; i < once.size(); ++i) EXPECT_TRUE(once[i].equal(each_time[i])) << i << resets_first;
  }
}

TEST_F(RecordedTest, GradientsThatAddUpGoOnAddingUp) {
  const torch::Tensor w = on_device(torch::ones({2})).requires_grad_();
  int calls = 0;
  const auto f = function([&](const torch::Tensor& x) {
    ++calls;
    (w * x).sum().backward();
  });
  const torch::Tensor x = on_device(torch::full({2}, 3.0));
  for (int i = 1; i <= 4; ++i) {
    f(x);
    EXPECT_TRUE(same(w.grad(), torch::full({2}, 3.0 * i))) << i;
  }
  EXPECT_EQ(calls, 2);
  for (int i = 0; i < 3; ++i) {
    w.mutable_grad() = torch::Tensor();  // another state than the one that was recorded
    f(x);
    EXPECT_TRUE(same(w.grad(), torch::full({2}, 3.0))) << i;
  }
}

TEST_F(RecordedTest, AHandleThatMeansAnotherTensorIsRecordedAgain) {
  torch::Tensor state = on_device(torch::zeros({2}));
  int calls = 0;
  const auto f = function([&](const torch::Tensor& x) {
    ++calls;
    state = state + x;
    return state * 1;
  });
  for (int i = 1; i <= 6; ++i) {
    EXPECT_TRUE(same(f(on_device(torch::ones({2}))), torch::full({2}, static_cast<double>(i)))) << i;
    EXPECT_TRUE(same(state, torch::full({2}, static_cast<double>(i)))) << i;
  }
  EXPECT_EQ(calls, 6);
}

TEST_F(RecordedTest, ATensorThatIsGoneIsNotKept) {
  auto w = std::make_shared<torch::Tensor>(on_device(torch::ones({2})));
  const auto f = function([&](const torch::Tensor& x) { return x * *w; });
  const torch::Tensor x = on_device(torch::ones({2}));
  EXPECT_TRUE(same(f(x), torch::ones({2})));
  *w = on_device(torch::full({2}, 5.0));
  EXPECT_TRUE(same(f(x), torch::full({2}, 5.0)));
}

TEST_F(RecordedTest, VariablesThatTheFirstCallMakesAreThereForTheOthers) {
  torch::Tensor sum;
  int calls = 0;
  const auto f = function([&](const torch::Tensor& x) {
    ++calls;
    if (!sum.defined()) sum = torch::zeros_like(x);
    sum.add_(x);
    return sum * 2;
  });
  for (int i = 1; i <= 4; ++i) EXPECT_TRUE(same(f(on_device(torch::ones({2}))), torch::full({2}, 2.0 * i))) << i;
  EXPECT_TRUE(same(sum, torch::full({2}, 4.0)));
  EXPECT_EQ(calls, 2);
}

TEST_F(RecordedTest, WritesItsArgumentsWhereItDoes) {
  const auto f = function([](torch::Tensor x, const torch::Tensor& by) {
    x.add_(by);
    return x.sum();
  });
  for (int i = 0; i < 3; ++i) {
    const torch::Tensor all = on_device(torch::zeros({2, 3}));
    f(all.select(0, 1), on_device(torch::ones({3})));
    EXPECT_TRUE(same(all, torch::tensor({0.F, 0.F, 0.F, 1.F, 1.F, 1.F}).view({2, 3})));
  }
  const torch::Tensor shared = on_device(torch::ones({3}));
  expect_error<FailedPrecondition>([&] { f(shared, shared); }, "shares its memory with another tensor of the function");
}

TEST_F(RecordedTest, DrawsTheSameNumbersAsWithoutIt) {
  record::Recording& recording = record::recording_of(kDevice);
  const auto f = function([](const torch::Tensor& x) { return torch::rand_like(x) + x; });
  const torch::Tensor x = on_device(torch::zeros({4}));
  recording.manual_seed(9);
  Tensors once;
  for (int i = 0; i < 3; ++i) once.push_back(f(x).to(torch::kCPU));
  recording.manual_seed(9);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(once[static_cast<std::size_t>(i)].equal(torch::rand_like(x).to(torch::kCPU)));
  EXPECT_FALSE(once[0].equal(once[1]));
}

TEST_F(RecordedTest, SideEffectsHappenWhileItIsRecorded) {
  std::vector<std::string> said;
  Tensors kept;
  const auto f = function([&](const torch::Tensor& x, const std::string& word) {
    said.push_back(word);
    return std::make_tuple(x + 1, said.size(), torch::Tensor(), word);
  });
  const torch::Tensor x = on_device(torch::ones({2}));
  for (int i = 0; i < 3; ++i) {
    const auto [sum, size, none, word] = f(x, "a");
    EXPECT_TRUE(same(sum, torch::full({2}, 2.0)));
    EXPECT_EQ(size, 1U);
    EXPECT_FALSE(none.defined());
    EXPECT_EQ(word, "a");
  }
  f(x, "b");
  EXPECT_EQ(said, (std::vector<std::string>{"a", "b"}));
}

TEST_F(RecordedTest, OneFunctionWithinAnotherIsAPartOfIt) {
  int calls = 0;
  const auto inner = function([&](const torch::Tensor& x) {
    ++calls;
    return x * 2;
  });
  const auto outer = function([&](const torch::Tensor& x) { return inner(x) + inner(x + 1); });
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(same(outer(on_device(torch::ones({2}))), torch::full({2}, 6.0)));
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(outer.experimental_get_tracing_count(), 1);
}

TEST_F(RecordedTest, AFailureLeavesEverythingAsItWas) {
  const torch::Tensor w = on_device(torch::ones({2}));
  bool fails = true;
  const auto f = function(
      [&](const torch::Tensor& x) {
        w.add_(x);
        if (fails) throw std::out_of_range("own");
        return w + 0;
      },
      {.name = "f"});
  const torch::Tensor x = on_device(torch::ones({2}));
  EXPECT_THROW(f(x), std::out_of_range);
  EXPECT_TRUE(same(w, torch::ones({2})));
  fails = false;
  EXPECT_TRUE(same(f(x), torch::full({2}, 2.0)));
  const auto reads =
      function([](const torch::Tensor& y) { return y.sum().item<float>() > 0 ? y : -y; }, {.name = "reads"});
  expect_error<FailedPrecondition>([&] { reads(x); }, "the function reads is recorded: values exist only when");
  const auto elsewhere = function(
      [&](const torch::Tensor& y) { return y + (torch::ones({2}).to(torch::Device(torch::kXLA, 1)) + 1).to(kDevice); },
      {.name = "elsewhere"});
  expect_error<FailedPrecondition>([&] { elsewhere(x); }, "the function elsewhere uses a tensor of xla:1");
}

TEST_F(RecordedTest, GradientsDoNotFlowOutAndSaySo) {
  const torch::Tensor w = on_device(torch::ones({2})).requires_grad_();
  const auto f = function([&](const torch::Tensor& x) { return (w * x).sum(); }, {.name = "f"});
  for (int i = 0; i < 2; ++i) {
    const torch::Tensor loss = f(on_device(torch::ones({2})));
    EXPECT_TRUE(loss.requires_grad());
    EXPECT_EQ(loss.item<float>(), 2.0F);
    expect_error<Unimplemented>([&] { loss.backward(); }, "f: gradients do not flow out of a function on xla:0");
  }
  const auto g = function([](const torch::Tensor& x) { (x * x).sum().backward(); }, {.name = "g"});
  expect_error<InvalidArgument>([&] { g(on_device(torch::ones({2})).requires_grad_()); },
                                "gives the tensor 0 (Float[2]) of its arguments a gradient");
}

TEST_F(RecordedTest, AConcreteFunctionPrintsTextAndCost) {
  const torch::Tensor w = on_device(torch::ones({3, 4}));
  record::set_name(w, "dense.weight");
  int calls = 0;
  const auto f = function(
      [&](const torch::Tensor& x, int by) {
        ++calls;
        w.mul_(by);
        return x.mm(w);
      },
      {.name = "product"});
  const torch::Tensor x = on_device(torch::ones({2, 3}));
  const ConcreteFunction concrete = f.get_concrete_function(x, 2);
  EXPECT_EQ(concrete.signature(), "product(f32[2, 3] xla:0, 2)");
  EXPECT_TRUE(same(w, torch::ones({3, 4})));  // nothing has run
  const std::string text = concrete.text();
  EXPECT_NE(text.find("module @product"), std::string::npos) << text;
  EXPECT_NE(text.find("stablehlo.dot_general"), std::string::npos) << text;
  EXPECT_NE(text.find("dense"), std::string::npos) << text;
  const FunctionCost cost = concrete.cost();
  ASSERT_TRUE(cost.flops.has_value());
  EXPECT_GE(*cost.flops, 2 * 2 * 3 * 4);
  std::ostringstream out;
  out << concrete;
  EXPECT_NE(out.str().find("floating-point operations: "), std::string::npos) << out.str();
  EXPECT_NE(out.str().find(text), std::string::npos);
  EXPECT_TRUE(same(f(x, 2), torch::full({2, 4}, 6.0)));
  EXPECT_EQ(calls, 1);
  expect_error<Unimplemented>(
      [&] {
        (void)f.get_concrete_function(TensorSpec{.shape = {{2, 3}}}, 2).text();
      },
      "cpu does not record");
}

TEST_F(RecordedTest, SizesThatVaryAreOneSignatureAndAProgramEach) {
  int calls = 0;
  const auto f = function(
      [&](const torch::Tensor& x) {
        ++calls;
        return x.sum(0);
      },
      {.name = "f", .input_signature = {{{.shape = {{kAnySize, 2}}}}}});
  for (int round = 0; round < 2; ++round) {
    for (const int64_t rows : {1, 2, 3}) {
      EXPECT_TRUE(same(f(on_device(torch::ones({rows, 2}))), torch::full({2}, static_cast<double>(rows))));
    }
  }
  EXPECT_EQ(f.experimental_get_tracing_count(), 1);
  EXPECT_EQ(calls, 3);
}

TEST_F(RecordedTest, JitCompileIsWhatHappens) {
  const auto f = function([](const torch::Tensor& x) { return x + 1; }, {.name = "f", .jit_compile = true});
  EXPECT_TRUE(same(f(on_device(torch::ones({2}))), torch::full({2}, 2.0)));
  const auto g = function([](const torch::Tensor& x) { return x + 1; }, {.name = "g", .jit_compile = false});
  EXPECT_EQ(error_of<InvalidArgument>([&] { g(on_device(torch::ones({2}))); }),
            "[function] g: jit_compile is false, but on xla:0 all work is compiled; leave it unset");
}

}  // namespace
}  // namespace recorded_test
}  // namespace cohort
