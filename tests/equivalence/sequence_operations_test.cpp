// Operations with sequences whose positions are in parts, one by one, against the same with whole sequences: values,
// and the gradients of the activations and of the weights. The lengths do not divide, and some parts are empty.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/libtorch_compat.h"
#include "cohort/cohort.h"
#include "cohort/parallel/mesh_strategy.h"
#include "tests/equivalence/operations.h"
#include "tests/support/errors.h"

namespace cohort::equivalence::sequence_operations_test {
namespace {

using operations::Change;
using operations::expect_like;
using operations::Outcome;
using operations::run;
using torch::Tensor;

// An operation with activations [2, steps, 6] and a weight [6, 6].
struct Case {
  std::string name;
  std::function<Tensor(const Tensor& x, const Tensor& weight)> run;
};

Tensor by_heads(const Tensor& x) {
  return x.view({x.size(0), x.size(1), 3, 2}).transpose(1, 2);
}

// LibTorch's own attention, by its name of the version.
Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value, const c10::optional<Tensor>& mask,
                 bool causal) {
#if COHORT_TORCH_AT_LEAST(2, 0)
  return at::scaled_dot_product_attention(query, key, value, mask, 0.0, causal);
#else
  return std::get<0>(at::_scaled_dot_product_attention(query, key, value, mask, 0.0, false, causal));
#endif
}

std::vector<Case> products() {
  return {
      {"linear", [](const Tensor& x, const Tensor& w) { return torch::linear(x, w, w.select(0, 1)); }},
      {"over positions",
       [](const Tensor& x, const Tensor& w) {
         return torch::linear(x.transpose(1, 2), w.repeat({1, 3}).narrow(1, 0, x.size(1)), w.select(0, 2));
       }},
      {"matrix", [](const Tensor& x, const Tensor& w) { return torch::matmul(x, w); }},
      {"matrix first", [](const Tensor& x, const Tensor& w) { return torch::matmul(w, x.transpose(1, 2)); }},
      {"vector", [](const Tensor& x, const Tensor& w) { return torch::matmul(x, w.select(0, 0)); }},
      {"weights of examples",
       [](const Tensor& x, const Tensor& w) {
         return torch::matmul(x, torch::stack({w, w * 2.0}));
       }},
      {"weights of positions",
       [](const Tensor& x, const Tensor& w) {
         const Tensor each = (w.unsqueeze(0) * torch::arange(x.size(1), torch::kDouble).view({-1, 1, 1})).unsqueeze(0);
         return torch::matmul(x.unsqueeze(2), each);
       }},
      {"of parts by parts", [](const Tensor& x, const Tensor&) { return torch::matmul(x.transpose(1, 2), x); }},
      {"batches", [](const Tensor& x, const Tensor&) { return torch::bmm(x.transpose(1, 2), x.exp()); }},
      {"attention by hand",
       [](const Tensor& x, const Tensor& w) {
         const Tensor query = by_heads(torch::linear(x, w)), key = by_heads(x);
         return torch::matmul(torch::softmax(torch::matmul(query, key.transpose(2, 3)), -1), by_heads(x.tanh()))
             .transpose(1, 2)
             .reshape(x.sizes());
       }},
      {"columns of keys",
       [](const Tensor& x, const Tensor& w) { return torch::softmax(torch::matmul(w, x.transpose(1, 2)), 1); }},
      {"a query for all",
       [](const Tensor& x, const Tensor& w) {
         const Tensor weights = torch::softmax(torch::matmul(w.narrow(0, 0, 1), x.transpose(1, 2)), -1);
         return torch::matmul(weights, x);
       }},
  };
}

std::vector<Case> others() {
  return {
      {"layer norm",
       [](const Tensor& x, const Tensor& w) { return torch::layer_norm(x, {6}, w.select(0, 0), w.select(0, 1)); }},
      {"embedding",
       [](const Tensor& x, const Tensor& w) {
         return torch::embedding(w, (x.detach().select(2, 0) > 0).to(torch::kLong)) + x;
       }},
      {"positions",
       [](const Tensor& x, const Tensor& w) {
         const Tensor places = torch::embedding(w, torch::arange(x.size(1)) % 6);
         return x + places * torch::arange(x.size(1), torch::kDouble).unsqueeze(1);
       }},
      {"heads", [](const Tensor& x, const Tensor&) { return by_heads(x).transpose(1, 2).reshape(x.sizes()) * x; }},
      {"more heads",
       [](const Tensor& x, const Tensor&) {
         const Tensor heads = by_heads(x);
         return heads.unsqueeze(2).expand({2, 3, 2, x.size(1), 2}).reshape({2, 6, x.size(1), 2});
       }},
      {"flat heads", [](const Tensor& x, const Tensor&) { return by_heads(x).transpose(1, 2).flatten(2) * x; }},
      {"rows",
       [](const Tensor& x, const Tensor&) {
         return x.reshape({-1, 6}).flatten();
       }},
      {"apart",
       [](const Tensor& x, const Tensor&) {
         const auto parts = x.view({2, x.size(1), 2, 3}).unbind(2);
         return parts[0] * parts[1];
       }},
      {"mean of positions", [](const Tensor& x, const Tensor&) { return x.mean(1); }},
      {"last position", [](const Tensor& x, const Tensor&) { return x.select(1, -1); }},
      {"losses",
       [](const Tensor& x, const Tensor&) {
         const Tensor labels = torch::arange(2 * x.size(1)).view({2, x.size(1)}) % 6;
         return torch::cross_entropy_loss(x.transpose(1, 2), labels);
       }},
      {"scaled dot product",
       [](const Tensor& x, const Tensor& w) {
         const Tensor query = by_heads(torch::linear(x, w)), key = by_heads(x);
         return attention(query, key, by_heads(x.tanh()), {}, true);
       }},
      {"scaled dot product with a mask",
       [](const Tensor& x, const Tensor& w) {
         const Tensor steps = torch::arange(x.size(1));
         const Tensor seen = (steps.unsqueeze(1) - steps).abs() < 4;
         return attention(torch::linear(x, w), x, x.tanh(), seen, false);
       }},
  };
}

Outcome run(const Case& each, int64_t steps, const Change& split, const Change& whole, bool sums_parts) {
  return run(each.run, {2, steps, 6}, {6, 6}, split, whole, sums_parts);
}

void expect_like_one_device(const std::vector<Case>& cases) {
  const auto same = [](const Tensor& x) { return x; };
  for (const auto& [parts, steps] : {std::pair(2, 13), std::pair(3, 13), std::pair(3, 2)}) {
    const MeshStrategy strategy(DeviceMesh({parts}, {"sequence"}, cpu_devices(parts)));
    for (const Case& each : cases) {
      const Outcome wanted = run(each, steps, same, same, false);
      strategy.run([&, parts = parts, steps = steps](Replica& replica) {
        for (const bool sums_parts : {false, true}) {
          SCOPED_TRACE(c10::str(each.name, ", ", steps, " in ", parts, ", replica ", replica.group("sequence").rank()));
          const Outcome got = run(
              each, steps,
              [&](const Tensor& x) {
                return strategy.experimental_split_to_logical_devices(x, {1, parts, 1});
              },
              [&](const Tensor& y) { return strategy.experimental_replicate_to_logical_devices(y); }, sums_parts);
          expect_like(got, wanted);
        }
      });
    }
  }
}

TEST(SequenceOperations, ProductsOfParts) {
  expect_like_one_device(products());
}
TEST(SequenceOperations, OtherOperationsOnParts) {
  expect_like_one_device(others());
}

TEST(SequenceOperations, WhatHasNoRuleIsNamed) {
  const MeshStrategy strategy(DeviceMesh({2}, {"sequence"}, cpu_devices(2)));
  const auto expect = [&](const std::function<void(const Tensor&)>& fn, const std::string& part) {
    const std::string message = testing::error_of<Unimplemented>([&] {
      strategy.run([&](Replica& /*replica*/) {
        fn(strategy.experimental_split_to_logical_devices(torch::ones({2, 8, 6}, torch::kDouble), {1, 2, 1}));
      });
    });
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect([](const Tensor& x) { torch::sort(x, 1); },
         "of a tensor of [2, 8, 6], cut in 2 parts along dimension 1, cannot be computed in parts");
  expect(
      [](const Tensor& x) {
        torch::linear(torch::ones({3, 6}, torch::kDouble), x.select(0, 0));
      },
      "its weights are cut");
  expect([](const Tensor& x) { torch::layer_norm(x, {8, 6}); }, "the dimensions that it norms, from 1 on");
  expect([](const Tensor& x) { x.unbind(1); }, "dimension 1, which it takes apart, is cut");
  expect(
      [](const Tensor& x) {
        torch::embedding(torch::ones({9, 3}, torch::kDouble), x.select(2, 0).to(torch::kLong), -1, true);
      },
      "scale_grad_by_freq");
  expect([](const Tensor& x) { attention(x, x, x, torch::zeros({8, 8}, torch::kDouble), false); }, "a mask is Double");
}

}  // namespace
}  // namespace cohort::equivalence::sequence_operations_test
