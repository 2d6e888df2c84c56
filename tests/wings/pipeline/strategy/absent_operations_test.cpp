// Operations in a chunk of a model that another process computes: what comes out has the sizes, the dtype and the need
// of a gradient of what would be computed.
#include "wings/pipeline/strategy/absent_operations.h"
#include "strategy/absent.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/libtorch_compat.h"
#include "cohort/error.h"
#include "strategy/context.h"
#include "strategy/replica_scope.h"
#include "tests/support/errors.h"

namespace cohort::absent_test {
namespace {

namespace F = torch::nn::functional;

// A call whose function is in a chunk of another process while it lives.
class Elsewhere final : public ReplicaScope {
 public:
  explicit Elsewhere(bool elsewhere = true) : elsewhere_(elsewhere) {
    install_absent_kernel();
    thread_context().replica_scope = this;
    hand_over_operations(true);
  }
  ~Elsewhere() override {
    hand_over_operations(false);
    thread_context().replica_scope = nullptr;
  }
  int64_t examples() const override { return 1; }
  at::Generator& generator() override { return generator_; }
  Communicator& group(std::string_view /*axis*/) override { throw std::logic_error("there is no line"); }
  std::vector<torch::Tensor> at_cut(const std::vector<torch::Tensor>& values) override { return values; }
  bool begins_at(std::string_view /*name*/) override { return false; }
  void minimize(LaterStep /*step*/) override {}
  void after_step(std::function<void(const Replica&)> /*act*/) override {}
  bool elsewhere() const override { return elsewhere_; }
  void note_use(const torch::Tensor& tensor) override { used.insert(tensor.unsafeGetTensorImpl()); }
  void come_here() { elsewhere_ = false; }
  void note_change(const torch::Tensor& tensor) override { changed.insert(tensor.unsafeGetTensorImpl()); }

  TensorIds used, changed;

 private:
  bool elsewhere_;
  at::Generator generator_;
};

using Make = std::function<torch::Tensor(const torch::Tensor&)>;

void expect_like(const char* name, const torch::Tensor& x, const Make& make) {
  SCOPED_TRACE(name);
  const torch::Tensor wanted = make(x);
  torch::Tensor got;
  try {
    const torch::Tensor absent = [&] {
      install_absent_kernel();
      return absent_like(x);
    }();
    const Elsewhere call;
    got = make(absent);
  } catch (const std::exception& error) {
    FAIL() << error.what();
  }
  ASSERT_TRUE(is_absent(got));
  EXPECT_EQ(got.sizes(), wanted.sizes());
  EXPECT_EQ(got.scalar_type(), wanted.scalar_type());
  EXPECT_EQ(got.requires_grad(), wanted.requires_grad());
}

TEST(Absent, OperationsOfImages) {
  const torch::Tensor x = torch::randn({2, 4, 9, 9}).set_requires_grad(true);
  torch::nn::Conv2d convolution(torch::nn::Conv2dOptions(4, 6, 3).stride(2).padding(1));
  torch::nn::Conv2d grouped(torch::nn::Conv2dOptions(4, 8, 3).groups(2).padding(torch::kSame));
  torch::nn::ConvTranspose2d transposed(torch::nn::ConvTranspose2dOptions(4, 3, 2).stride(2));
  torch::nn::BatchNorm2d norm(4);
  torch::nn::GroupNorm groups(torch::nn::GroupNormOptions(2, 4));
  const std::vector<std::pair<const char*, Make>> cases = {
      {"convolution", [&](const torch::Tensor& t) { return convolution(t); }},
      {"groups", [&](const torch::Tensor& t) { return grouped(t); }},
      {"transposed", [&](const torch::Tensor& t) { return transposed(t); }},
      {"batch norm", [&](const torch::Tensor& t) { return norm(t); }},
      {"group norm", [&](const torch::Tensor& t) { return groups(t); }},
      {"max pool", [](const torch::Tensor& t) { return torch::max_pool2d(t, 2); }},
      {"average pool", [](const torch::Tensor& t) { return torch::avg_pool2d(t, 2); }},
      {"global pool",
       [](const torch::Tensor& t) {
         return torch::adaptive_avg_pool2d(t, {1, 1}).flatten(1);
       }},
      {"nearest",
       [](const torch::Tensor& t) {
         return torch::upsample_nearest2d(t, {18, 18});
       }},
      {"bilinear",
       [](const torch::Tensor& t) {
         return torch::upsample_bilinear2d(t, {18, 18}, false);
       }},
      {"padding",
       [](const torch::Tensor& t) {
         return F::pad(t, F::PadFuncOptions({1, 1, 2, 0}));
       }},
      {"turned in place", [](const torch::Tensor& t) { return (t + 1.0).transpose_(0, 3).squeeze_(1).unsqueeze_(0); }},
      {"relu in place", [](const torch::Tensor& t) { return (t + 1.0).relu_(); }},
      {"mean",
       [](const torch::Tensor& t) {
         return t.mean({2, 3});
       }},
  };
  for (const auto& [name, make] : cases) expect_like(name, x, make);
}

TEST(Absent, OperationsOfSequences) {
  const torch::Tensor x = torch::randn({3, 5, 8}).set_requires_grad(true);
  torch::nn::Linear linear(8, 6), query(8, 8);
  torch::nn::LayerNorm norm(torch::nn::LayerNormOptions({8}));
  torch::nn::Embedding table(11, 8);
  const auto attention = [&](const torch::Tensor& t) {
    const torch::Tensor heads = query(t).view({3, 5, 2, 4}).transpose(1, 2);
    const torch::Tensor mask = torch::ones({5, 5}, torch::kBool).tril().logical_not();
    const torch::Tensor scores = (heads.matmul(heads.transpose(-1, -2)) / 2.0).masked_fill(mask, -1e9);
    return scores.softmax(-1).matmul(heads).transpose(1, 2).reshape({3, 5, 8});
  };
  const std::vector<std::pair<const char*, Make>> cases = {
      {"linear", [&](const torch::Tensor& t) { return linear(t); }},
      {"rows", [&](const torch::Tensor& t) { return linear(t[0]); }},
      {"attention", attention},
      {"layer norm", [&](const torch::Tensor& t) { return norm(t); }},
      {"table", [&](const torch::Tensor& t) { return t + table(torch::arange(5)); }},
      {"dropout", [](const torch::Tensor& t) { return torch::dropout(t, 0.5, true); }},
      {"gelu", [](const torch::Tensor& t) { return torch::gelu(t) * torch::sigmoid(t) + torch::silu(t); }},
      {"parts",
       [](const torch::Tensor& t) {
         return torch::cat({t.chunk(2, -1)[0], t.slice(2, 0, 3)}, -1);
       }},
      {"stack",
       [](const torch::Tensor& t) {
         return torch::stack({t, t * 2.0}).permute({1, 0, 3, 2});
       }},
      {"norms", [](const torch::Tensor& t) { return t * torch::rsqrt(t.pow(2).mean(-1, true) + 1e-6); }},
      {"expand",
       [](const torch::Tensor& t) {
         return t.unsqueeze(1).expand({3, 2, 5, 8}).contiguous();
       }},
      {"where", [](const torch::Tensor& t) { return torch::where(t > 0.0, t, torch::zeros_like(t)); }},
      {"greatest", [](const torch::Tensor& t) { return std::get<0>(t.max(1)); }},
      {"which", [](const torch::Tensor& t) { return t.argmax(-1); }},
      {"half", [](const torch::Tensor& t) { return t.to(torch::kHalf); }},
      {"detached", [](const torch::Tensor& t) { return t.detach() * 2.0; }},
      {"loss", [](const torch::Tensor& t) { return F::cross_entropy(t.flatten(0, 1), torch::arange(15) % 8); }},
      {"square",
       [](const torch::Tensor& t) {
         return torch::mse_loss(t, torch::zeros({3, 5, 8}));
       }},
  };
  for (const auto& [name, make] : cases) expect_like(name, x, make);
}

// The dtypes are those that the operations have where they are computed.
TEST(Absent, OperationsUnderAutocast) {
  const torch::Tensor x = torch::randn({2, 4, 9}).set_requires_grad(true);
  torch::nn::Linear linear(9, 9);
  torch::nn::Conv1d convolution(4, 4, 3);
  const compat::Autocast half(c10::DeviceType::CPU, torch::kBFloat16);
  expect_like("linear", x, [&](const torch::Tensor& t) { return linear(torch::tanh(linear(t)) + t); });
  expect_like("convolution", x, [&](const torch::Tensor& t) { return convolution(linear(t)); });
  expect_like("matmul", x, [](const torch::Tensor& t) { return t.matmul(t.transpose(1, 2)); });
  expect_like("softmax", x, [&](const torch::Tensor& t) { return linear(t).softmax(-1); });
  expect_like("joined", x, [&](const torch::Tensor& t) { return torch::cat({linear(t), t}, 0); });
}

// A parameter alone, such as that of the first layer, says that the operation is another process's.
TEST(Absent, WhatParametersMakeIsAbsent) {
  torch::nn::Embedding table(11, 8);
  const Elsewhere call;
  const torch::Tensor rows = table(torch::arange(5));
  EXPECT_TRUE(is_absent(rows));
  EXPECT_TRUE(rows.requires_grad());
  const torch::Tensor mask = torch::arange(5) > 2;
  EXPECT_FALSE(is_absent(mask));
  EXPECT_TRUE(mask.any().item<bool>());
}

TEST(Absent, ValuesAreNotThere) {
  const torch::Tensor x = torch::randn({2, 3});
  const Elsewhere call;
  const torch::Tensor absent = absent_like(x);
  for (const auto& read : std::vector<std::pair<const char*, std::function<void()>>>{
           {"aten::_local_scalar_dense", [&] { (void)absent.sum().item<float>(); }},
           {"aten::nonzero", [&] { (void)absent.nonzero(); }}}) {
    const std::string message = testing::error_of<Unimplemented>(read.second);
    EXPECT_NE(message.find(read.first), std::string::npos) << message;
  }
}

// A sum to which layers add in place has values that no process has whole.
TEST(Absent, WhatIsWrittenElsewhereIsLacking) {
  torch::Tensor sum = torch::zeros({2, 3}), rows = torch::zeros({4, 3}), other = torch::zeros({3});
  Elsewhere call;
  sum += absent_like(torch::ones({2, 3}));
  rows[1] = absent_like(torch::ones({3}));
  for (const torch::Tensor& lacking : {sum, sum.detach(), rows, rows[0]}) EXPECT_TRUE(is_absent(lacking * 2.0));
  EXPECT_FALSE(is_absent(other * 2.0));
  testing::expect_error<Unimplemented>([&] { (void)sum.sum().item<float>(); }, "aten::_local_scalar_dense");
  call.come_here();
  EXPECT_FALSE(is_absent(other + 1.0));
  testing::expect_error<FailedPrecondition>([&] { (void)(other + rows); }, "was given a tensor of [4, 3]");
}

TEST(Absent, AParameterThatIsElsewhereIsNamed) {
  torch::nn::Linear linear(3, 2);
  install_absent_kernel();
  torch::Tensor weight = linear->weight;
  make_absent(weight);
  EXPECT_TRUE(is_absent(linear->weight));
  EXPECT_TRUE(linear->weight.requires_grad());
  EXPECT_EQ(linear->weight.sizes(), (std::vector<int64_t>{2, 3}));
  const auto call_it = [&] { (void)linear(torch::ones({4, 3})); };
  EXPECT_NE(testing::error_of<FailedPrecondition>(call_it).find("state() or weights()"), std::string::npos);
  const Elsewhere here(/*elsewhere=*/false);
  EXPECT_NE(testing::error_of<FailedPrecondition>(call_it).find("next_stage()"), std::string::npos);
}

TEST(Absent, AChunkOfThisProcessNotesWhatItUses) {
  torch::nn::BatchNorm1d norm(3);
  const torch::Tensor other = torch::ones({3});
  Elsewhere here(/*elsewhere=*/false);
  const torch::Tensor y = norm(torch::ones({4, 3}));
  EXPECT_FALSE(is_absent(y));
  EXPECT_TRUE(y.requires_grad());
  for (const torch::Tensor& used : {norm->weight, norm->bias, norm->running_mean, norm->num_batches_tracked}) {
    EXPECT_TRUE(here.used.contains(used.unsafeGetTensorImpl()));
  }
  EXPECT_FALSE(here.used.contains(other.unsafeGetTensorImpl()));
}

TEST(Absent, AChunkOfThisProcessNotesWhatItChanges) {
  torch::nn::BatchNorm1d norm(3);
  torch::nn::InstanceNorm1d instances(torch::nn::InstanceNorm1dOptions(3).track_running_stats(true));
  Elsewhere here(/*elsewhere=*/false);
  norm(torch::ones({4, 3}));
  EXPECT_EQ(here.changed, TensorIds({norm->running_mean.unsafeGetTensorImpl(), norm->running_var.unsafeGetTensorImpl(),
                                     norm->num_batches_tracked.unsafeGetTensorImpl()}));
  here.changed.clear();
  instances(torch::ones({2, 3, 4}));
  EXPECT_TRUE(here.changed.contains(instances->running_var.unsafeGetTensorImpl()));
  here.changed.clear();
  norm->eval();
  norm(torch::ones({4, 3}));
  EXPECT_TRUE(here.changed.empty());
}

}  // namespace
}  // namespace cohort::absent_test
