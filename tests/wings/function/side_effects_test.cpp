// What functions change besides their results, on XLA's plugin for CPUs: gradients, buffers, tensors that are made in
// the first call, random streams. Each program runs eagerly on the CPU, eagerly on the device and as a function there,
// and leaves the same behind after each call.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/function.h"
#include "tests/support/xla.h"
#include "wings/xla/device/runner.h"
#include "wings/xla/record/generator.h"
#include "wings/xla/record/recorder.h"

namespace cohort {
namespace side_effects_test {
namespace {

using Tensors = std::vector<torch::Tensor>;

constexpr int kCalls = 6;
const torch::Device kXla(torch::kXLA, 0);

// A program on one device: what the function does, what the caller does before each call, what can be seen of it.
struct Program {
  std::function<torch::Tensor(const torch::Tensor&)> step;
  std::function<void(int call)> before = [](int) {};
  std::function<Tensors()> state;
};

struct Case {
  std::string name;
  std::function<Program(torch::Device)> make;
  bool draws = false;  // the CPU has other random numbers
};

std::ostream& operator<<(std::ostream& out, const Case& one) {
  return out << one.name;
}

torch::Tensor full(double value, torch::Device device, bool is_copied) {
  if (is_copied) return torch::full({2}, value).to(device);
  return torch::full({2}, value, torch::device(device));
}

// Losses of a weight and an input. The gradient of "plus", "minus", "mean" and "scaled" has nothing of either.
const std::vector<std::pair<std::string, std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&)>>>
    kLosses = {
        {"Product", [](const auto& w, const auto& x) { return (w * x).sum(); }},
        {"Square", [](const auto& w, const auto& x) { return (w * x).square().sum(); }},
        {"Plus", [](const auto& w, const auto& x) { return (w + x).sum(); }},
        {"Minus", [](const auto& w, const auto& x) { return (x - w).sum(); }},
        {"Mean", [](const auto& w, const auto& x) { return (w + x).mean(); }},
        {"Scaled", [](const auto& w, const auto&) { return (w * 2.0).sum(); }},
};

// What the caller does with the gradient between the calls.
const std::vector<std::pair<std::string, std::function<void(torch::Tensor&, int)>>> kBetween = {
    {"AddsUp", [](torch::Tensor&, int) {}},
    {"ResetEachTime", [](torch::Tensor& w, int) { w.mutable_grad() = torch::Tensor(); }},
    {"ResetBeforeTheSecond",
     [](torch::Tensor& w, int call) {
       if (call == 1) w.mutable_grad() = torch::Tensor();
     }},
    {"ResetEachThird",
     [](torch::Tensor& w, int call) {
       if (call % 3 == 0) w.mutable_grad() = torch::Tensor();
     }},
    {"ZeroedEachSecond",
     [](torch::Tensor& w, int call) {
       if (call % 2 == 0 && w.grad().defined()) w.mutable_grad().zero_();
     }},
    {"Replaced",
     [](torch::Tensor& w, int call) {
       if (call > 0) w.mutable_grad() = torch::full_like(w, call).detach();
     }},
};

// Gradients that were taken away are kept, and stay what they were.
Program gradients(torch::Device device, bool is_copied, std::size_t loss, std::size_t between) {
  auto w = std::make_shared<torch::Tensor>(full(3, device, is_copied).requires_grad_());
  auto taken = std::make_shared<Tensors>();
  return {.step =
              [=](const torch::Tensor& x) {
                const torch::Tensor value = kLosses[loss].second(*w, x);
                value.backward();
                return value.detach();
              },
          .before =
              [=](int call) {
                if (w->grad().defined()) taken->push_back(w->grad());
                kBetween[between].second(*w, call);
              },
          .state =
              [=] {
                Tensors seen{*w, w->grad()};
                seen.insert(seen.end(), taken->begin(), taken->end());
                return seen;
              }};
}

// The function resets the gradient itself: at its beginning, before backward, or in the end.
Program own_reset(torch::Device device, const std::string& where) {
  auto w = std::make_shared<torch::Tensor>(full(3, device, true).requires_grad_());
  const auto reset = [=](const std::string& here) {
    if (here == where) w->mutable_grad() = torch::Tensor();
  };
  return {.step =
              [=](const torch::Tensor& x) {
                reset("First");
                const torch::Tensor loss = (*w + x).sum();
                reset("BeforeBackward");
                loss.backward();
                {
                  const torch::NoGradGuard no_grad;
                  w->sub_(w->grad(), 0.5);
                }
                reset("Last");
                return loss.detach();
              },
          .state =
              [=] {
                return Tensors{*w, w->grad()};
              }};
}

// A tensor that the first call makes, of the input, of a tensor from before, or of numbers; each call moves it.
Program made_at_first(torch::Device device, const std::string& of) {
  auto w = std::make_shared<torch::Tensor>(full(3, device, true));
  auto own = std::make_shared<torch::Tensor>();
  return {.step =
              [=](const torch::Tensor& x) {
                if (!own->defined()) {
                  if (of == "Input") *own = x * 2;
                  if (of == "Tensor") *own = w->clone();
                  if (of == "Number") *own = torch::ones_like(x);
                  if (of == "Host") *own = torch::full({2}, 4.0).to(x.device());
                }
                w->add_(1);
                own->add_(1);
                return x + 1;
              },
          .state =
              [=] {
                return Tensors{*w, *own};
              }};
}

// A tensor that each call makes anew, whatever the caller has written to it.
Program made_each_time(torch::Device device, bool is_copied) {
  auto own = std::make_shared<torch::Tensor>();
  return {.step =
              [=](const torch::Tensor& x) {
                *own = full(7, device, is_copied);
                return x * *own;
              },
          .before =
              [=](int call) {
                if (own->defined()) own->add_(call);
              },
          .state = [=] { return Tensors{*own}; }};
}

Program batch_norm(torch::Device device) {
  torch::nn::BatchNorm1d net(2);
  for (torch::Tensor& each : net->parameters()) {
    if (device.is_xla()) record::move_in_place(each, device);
  }
  for (torch::Tensor& each : net->buffers()) {
    if (device.is_xla()) record::move_in_place(each, device);
  }
  return {.step =
              [net](const torch::Tensor& x) mutable {
                return net->forward(torch::stack({x, x * 2})).detach();
              },
          .state =
              [net] {
                Tensors seen = net->buffers();
                for (const torch::Tensor& each : net->parameters()) seen.push_back(each);
                return seen;
              }};
}

// Dropout draws from the stream of the device, which torch::manual_seed() seeds, in the function or between its calls.
Program dropout(torch::Device device, bool seeds_within) {
  return {.step =
              [=](const torch::Tensor& x) {
                if (seeds_within) torch::manual_seed(9);
                return torch::dropout(x.expand({32, 2}) + 0, 0.5, true);
              },
          .before =
              [=](int call) {
                if (call % 2 == 1) torch::manual_seed(static_cast<uint64_t>(call));
              },
          .state = [=] { return Tensors{torch::rand({4}, torch::device(device))}; }};
}

Program own_generator(torch::Device device, bool seeds_within) {
  auto generator = std::make_shared<at::Generator>(record::make_generator(device, 3));
  return {
      .step =
          [=](const torch::Tensor& x) {
            if (seeds_within) generator->set_current_seed(9);
            return torch::empty({32}, x.options()).uniform_(0, 1, *generator);
          },
      .before =
          [=](int call) {
            if (call % 2 == 1) generator->set_current_seed(static_cast<uint64_t>(call));
          },
      .state =
          [=] {
            return Tensors{generator->get_state(), torch::empty({4}, torch::device(device)).uniform_(0, 1, *generator)};
          }};
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const bool is_copied : {true, false}) {
    const std::string where = is_copied ? "CopiedThere" : "MadeThere";
    for (std::size_t loss = 0; loss < kLosses.size(); ++loss) {
      for (std::size_t between = 0; between < kBetween.size(); ++between) {
        all.push_back({kLosses[loss].first + kBetween[between].first + where,
                       [=](torch::Device device) { return gradients(device, is_copied, loss, between); }});
      }
    }
    all.push_back(
        {"TensorMadeEachTime" + where, [=](torch::Device device) { return made_each_time(device, is_copied); }});
  }
  for (const std::string where : {"First", "BeforeBackward", "Last"}) {
    all.push_back({"ResetsItself" + where, [=](torch::Device device) { return own_reset(device, where); }});
  }
  for (const std::string of : {"Input", "Tensor", "Number", "Host"}) {
    all.push_back({"MadeAtFirstOf" + of, [=](torch::Device device) { return made_at_first(device, of); }});
  }
  all.push_back({"BatchNorm", batch_norm});
  for (const bool within : {true, false}) {
    const std::string where = within ? "SeededWithin" : "SeededBetween";
    all.push_back({"Dropout" + where, [=](torch::Device device) { return dropout(device, within); }, true});
    all.push_back({"OwnGenerator" + where, [=](torch::Device device) { return own_generator(device, within); }, true});
  }
  return all;
}

class SideEffects : public testing::XlaCpuTest, public ::testing::WithParamInterface<Case> {
 protected:
  void SetUp() override {
    XlaCpuTest::SetUp();
    if (!plugin_) return;
    record::install_recorder({.devices = 2});
    static const std::shared_ptr<record::GraphRunner> runner = make_xla_runner(client(2));
    record::set_runner(runner);
  }
  void TearDown() override { run_functions_eagerly(false); }
};

torch::Tensor on_host(const torch::Tensor& seen) {
  return seen.defined() ? seen.detach().to(torch::kCPU).clone() : seen;
}

// Returns the result and the state after each call.
std::vector<Tensors> observed(const Case& one, torch::Device device, bool through_function) {
  torch::manual_seed(1);
  run_functions_eagerly(!through_function);
  const Program program = one.make(device);
  const auto step = function(program.step, {.name = one.name});
  std::vector<Tensors> all;
  for (int call = 0; call < kCalls; ++call) {
    program.before(call);
    Tensors& seen = all.emplace_back();
    seen.push_back(on_host(step(torch::full({2}, 1.0 + call).to(device))));
    for (const torch::Tensor& each : program.state()) seen.push_back(on_host(each));
  }
  return all;
}

void expect_same(const std::vector<Tensors>& wanted, const std::vector<Tensors>& got, const std::string& what) {
  for (std::size_t call = 0; call < wanted.size(); ++call) {
    ASSERT_EQ(got[call].size(), wanted[call].size()) << what;
    for (std::size_t i = 0; i < wanted[call].size(); ++i) {
      const torch::Tensor& w = wanted[call][i];
      const torch::Tensor& g = got[call][i];
      ASSERT_EQ(g.defined(), w.defined()) << what << ", call " << call << ", tensor " << i;
      if (!w.defined()) continue;
      EXPECT_TRUE(torch::allclose(g, w, 1e-6, 1e-6)) << what << ", call " << call << ", tensor " << i << ": " << g << w;
    }
  }
}

TEST_P(SideEffects, AreThoseOfTheSameProgramWithoutAFunction) {
  const Case& one = GetParam();
  const std::vector<Tensors> eager = observed(one, kXla, false);
  if (!one.draws) expect_same(observed(one, torch::kCPU, false), eager, "eager on the device");
  expect_same(eager, observed(one, kXla, true), "the function");
}

INSTANTIATE_TEST_SUITE_P(Programs, SideEffects, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace side_effects_test
}  // namespace cohort
