// Operations with images in parts, one by one, against the same with the whole image: values, and the gradients of the
// image and of the weights. The sizes do not divide, and some parts are empty.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/cohort.h"
#include "cohort/parallel/mesh_strategy.h"
#include "tests/equivalence/operations.h"
#include "tests/support/errors.h"

namespace cohort::equivalence::space_operations_test {
namespace {

using operations::Change;
using operations::expect_like;
using operations::Outcome;
using operations::run;
using torch::Tensor;
using Dims = std::vector<int64_t>;

// An operation with an image [2, 4, height, width] and a weight [6, 4, 3, 3].
struct Case {
  std::string name;
  std::function<Tensor(const Tensor& x, const Tensor& weight)> run;
  int64_t height = 13;
  int64_t width = 10;
};

Tensor vector_of(const Tensor& weight, int64_t size) {
  return weight.flatten().slice(0, 0, size);
}

std::vector<Case> convolutions() {
  std::vector<Case> list;
  for (const int64_t stride : {1, 2, 3}) {
    for (const int64_t dilation : {1, 2, 3}) {
      for (const int64_t padding : {0, 1, 3}) {
        list.push_back({c10::str("conv ", stride, " ", dilation, " ", padding), [=](const Tensor& x, const Tensor& w) {
                          return torch::conv2d(x, w, vector_of(w, 6), stride, padding, dilation);
                        }});
      }
    }
  }
  list.push_back({"wide kernel", [](const Tensor& x, const Tensor& w) {
                    return torch::conv2d(x, w.repeat({1, 1, 3, 2}).slice(2, 0, 7), {}, 2, {3, 2});
                  }});
  list.push_back({"even kernel, many hops",
                  [](const Tensor& x, const Tensor& w) {
                    return torch::conv2d(x, w.repeat({1, 1, 2, 1}), {}, 1, {4, 1});
                  },
                  5, 7});
  list.push_back({"pointwise", [](const Tensor& x, const Tensor& w) {
                    return torch::conv2d(x, w.slice(2, 0, 1).slice(3, 1, 2), {}, 2);
                  }});
  list.push_back({"depthwise", [](const Tensor& x, const Tensor& w) {
                    return torch::conv2d(x, w.slice(0, 0, 4).slice(1, 0, 1), {}, 2, 1, 1, /*groups=*/4);
                  }});
  list.push_back({"same", [](const Tensor& x, const Tensor& w) {
                    return torch::conv2d(x, w.slice(2, 0, 2), {}, 1, c10::string_view("same"));
                  }});
  for (const auto& [stride, padding, more, dilation] :
       {std::tuple(2, 0, 0, 1), std::tuple(2, 1, 1, 1), std::tuple(3, 1, 2, 1), std::tuple(1, 2, 0, 2),
        std::tuple(4, 0, 0, 1)}) {
    list.push_back(
        {c10::str("transposed ", stride, " ", padding, " ", dilation),
         [stride = stride, padding = padding, more = more, dilation = dilation](const Tensor& x, const Tensor& w) {
           return torch::conv_transpose2d(x, w.transpose(0, 1).slice(1, 0, 5), vector_of(w, 5), stride, padding, more,
                                          1, dilation);
         }});
  }
  list.push_back({"transposed by two", [](const Tensor& x, const Tensor& w) {
                    return torch::conv_transpose2d(x, w.transpose(0, 1).slice(2, 0, 2).slice(3, 0, 2), vector_of(w, 6),
                                                   2);
                  }});
  return list;
}

std::vector<Case> poolings() {
  return {
      {"max 2",
       [](const Tensor& x, const Tensor&) {
         return torch::max_pool2d(x, {2, 2});
       }},
      {"max 3 2 1",
       [](const Tensor& x, const Tensor&) {
         return torch::max_pool2d(x, {3, 3}, {2, 2}, {1, 1});
       }},
      {"max dilated",
       [](const Tensor& x, const Tensor&) {
         return torch::max_pool2d(x, {3, 2}, {1, 2}, {1, 0}, {2, 1});
       }},
      {"average",
       [](const Tensor& x, const Tensor&) {
         return torch::avg_pool2d(x, {3, 3}, {2, 2}, {1, 1});
       }},
      {"average of what is there",
       [](const Tensor& x, const Tensor&) {
         return torch::avg_pool2d(x, {3, 3}, {2, 1}, {1, 1}, false, false);
       }},
      {"average by 5",
       [](const Tensor& x, const Tensor&) {
         return torch::avg_pool2d(x, {2, 3}, {2, 3}, 0, false, true, 5);
       }},
      {"global average",
       [](const Tensor& x, const Tensor&) {
         return torch::adaptive_avg_pool2d(x, {1, 1});
       }},
      {"adaptive average",
       [](const Tensor& x, const Tensor&) {
         return torch::adaptive_avg_pool2d(x, {3, 2});
       }},
      {"global max",
       [](const Tensor& x, const Tensor&) {
         return torch::relu(x).amax({2, 3});
       }},
      {"mean",
       [](const Tensor& x, const Tensor&) {
         return x.mean({2, 3});
       }},
      {"sum of rows", [](const Tensor& x, const Tensor&) { return x.sum({2}); }},
      {"channels",
       [](const Tensor& x, const Tensor&) {
         return torch::cat({x.sum(1, true), x.amax({1}, true)}, 1);
       }},
  };
}

std::vector<Case> elements() {
  using torch::nn::functional::InterpolateFuncOptions;
  return {
      {"nearest",
       [](const Tensor& x, const Tensor&) {
         return torch::upsample_nearest2d(x, {26, 20});
       }},
      {"nearest to odd sizes",
       [](const Tensor& x, const Tensor&) {
         return torch::upsample_nearest2d(x, {17, 7});
       }},
      {"bilinear",
       [](const Tensor& x, const Tensor&) {
         return torch::upsample_bilinear2d(x, {26, 20}, false);
       }},
      {"bilinear, aligned",
       [](const Tensor& x, const Tensor&) {
         return torch::upsample_bilinear2d(x, {31, 7}, true);
       }},
      {"interpolate",
       [](const Tensor& x, const Tensor&) {
         return torch::nn::functional::interpolate(x, InterpolateFuncOptions()
                                                          .scale_factor(std::vector<double>{2.5, 2.0})
                                                          .mode(torch::kBilinear)
                                                          .align_corners(false)
                                                          .recompute_scale_factor(false));
       }},
      {"relu in place",
       [](const Tensor& x, const Tensor& w) {
         return (x * 2.0).add_(x).mul_(vector_of(w, 4).detach().view({4, 1, 1})).relu_();
       }},
      {"broadcast",
       [](const Tensor& x, const Tensor& w) {
         return x.sigmoid() * w.flatten().slice(0, 0, x.size(3)) + torch::where(x > 0, x, x * 0.1);
       }},
      {"columns",
       [](const Tensor& x, const Tensor& w) {
         return x - w.flatten().slice(0, 0, x.size(2)).view({-1, 1});
       }},
  };
}

std::vector<Case> moves() {
  return {
      {"padding",
       [](const Tensor& x, const Tensor&) {
         return torch::constant_pad_nd(x, {2, 5, -1, 3}, 0.5);
       }},
      {"much padding",
       [](const Tensor& x, const Tensor&) {
         return torch::constant_pad_nd(x, {0, 0, 30, 0}, 0.5);
       }},
      {"cropping",
       [](const Tensor& x, const Tensor&) {
         return torch::constant_pad_nd(x, {-3, -3, -9, 0});
       }},
      {"slices", [](const Tensor& x, const Tensor&) { return x.slice(2, 0, x.size(2), 2).slice(3, 1, -2, 3); }},
      {"narrow", [](const Tensor& x, const Tensor&) { return x.narrow(2, 4, 5); }},
      {"flatten", [](const Tensor& x, const Tensor&) { return x.flatten(1); }},
      {"reshape",
       [](const Tensor& x, const Tensor&) {
         return x.reshape({2, 2, 2, x.size(2), -1}).sum(2);
       }},
      {"permute",
       [](const Tensor& x, const Tensor&) {
         return x.permute({0, 2, 3, 1}).softmax(-1);
       }},
      {"split",
       [](const Tensor& x, const Tensor&) {
         const auto parts = x.chunk(2, 1);
         return torch::cat({parts[1], parts[0] * 2.0}, 1);
       }},
  };
}

std::vector<Case> norms_and_losses() {
  return {
      {"instance norm",
       [](const Tensor& x, const Tensor& w) {
         return torch::instance_norm(x, vector_of(w, 4), {}, {}, {}, true, 0.1, 1e-3, false);
       }},
      {"batch norm",
       [](const Tensor& x, const Tensor& w) {
         return torch::batch_norm(x, vector_of(w, 4), vector_of(w, 8).slice(0, 4), {}, {}, true, 0.1, 1e-3, false);
       }},
      {"normalized",
       [](const Tensor& x, const Tensor& w) {
         return torch::batch_norm(x, vector_of(w, 4), {}, torch::ones({4}, torch::kDouble),
                                  torch::full({4}, 2.0, torch::kDouble), false, 0.1, 1e-3, false);
       }},
      {"cross entropy",
       [](const Tensor& x, const Tensor& w) {
         const Tensor labels = (torch::arange(2 * x.size(2) * x.size(3)) % 5 - 1).view({2, x.size(2), x.size(3)});
         return torch::nn::functional::cross_entropy(
             x, labels,
             torch::nn::functional::CrossEntropyFuncOptions().ignore_index(-1).weight(vector_of(w, 4).detach().abs()));
       }},
      {"squares", [](const Tensor& x,
                     const Tensor& w) { return torch::mse_loss(x, w.flatten()[0] * torch::ones_like(x).detach()); }},
      {"logistic",
       [](const Tensor& x, const Tensor&) {
         return torch::binary_cross_entropy_with_logits(x, (x.detach() > 0).to(torch::kDouble));
       }},
  };
}

Outcome run(const Case& each, const Change& split, const Change& whole, bool sums_parts) {
  return run(each.run, {2, 4, each.height, each.width}, {6, 4, 3, 3}, split, whole, sums_parts);
}

void expect_like_one_device(const std::vector<Case>& cases) {
  const auto same = [](const Tensor& x) { return x; };
  std::vector<Outcome> wanted;
  for (const Case& each : cases) wanted.push_back(run(each, same, same, false));
  for (const Dims& dims : {Dims{1, 1, 2, 1}, Dims{1, 1, 1, 3}, Dims{1, 1, 2, 2}, Dims{1, 1, 5, 1}}) {
    const int parts = static_cast<int>(dims[2] * dims[3]);
    const MeshStrategy strategy(DeviceMesh({parts}, {"space"}, cpu_devices(parts)));
    strategy.run([&](Replica& replica) {
      for (std::size_t i = 0; i < cases.size(); ++i) {
        for (const bool sums_parts : {false, true}) {
          SCOPED_TRACE(c10::str(cases[i].name, " in ", dims, ", replica ", replica.group("space").rank()));
          const Outcome got = run(
              cases[i], [&](const Tensor& x) { return strategy.experimental_split_to_logical_devices(x, dims); },
              [&](const Tensor& y) { return strategy.experimental_replicate_to_logical_devices(y); }, sums_parts);
          expect_like(got, wanted[i]);
        }
      }
    });
  }
}

TEST(SpaceOperations, ConvolutionsOfParts) {
  expect_like_one_device(convolutions());
}
TEST(SpaceOperations, PoolingOfParts) {
  expect_like_one_device(poolings());
}
TEST(SpaceOperations, OtherOperationsOnParts) {
  for (const auto& list : {elements(), moves(), norms_and_losses()}) expect_like_one_device(list);
}

// Fewer rows than parts.
TEST(SpaceOperations, EmptyParts) {
  std::vector<Case> cases;
  for (const auto& list : {convolutions(), poolings()}) {
    for (Case each : list) {
      each.height = 7;
      each.width = 7;
      cases.push_back(each);
    }
  }
  cases.push_back({"two rows", [](const Tensor& x, const Tensor& w) { return torch::conv2d(x, w, {}, 1, 1); }, 2, 2});
  cases.push_back({"a pixel",
                   [](const Tensor& x, const Tensor& w) {
                     return torch::batch_norm(torch::conv2d(x, w, {}, 2, 1), {}, {}, {}, {}, true, 0.1, 1e-3, false);
                   },
                   2, 1});
  cases.push_back({"two rows again",
                   [](const Tensor& x, const Tensor& w) {
                     return torch::conv_transpose2d(torch::conv2d(x, w, {}, 2, 1), w.slice(1, 0, 3), vector_of(w, 3),
                                                    2);
                   },
                   2, 3});
  cases.erase(std::remove_if(cases.begin(), cases.end(),
                             [](const Case& each) {
                               return each.name.rfind("conv 1 3 0", 0) == 0 || each.name.rfind("conv 2 3 0", 0) == 0;
                             }),
              cases.end());
  expect_like_one_device(cases);
}

TEST(SpaceOperations, WhatHasNoRuleIsNamed) {
  const MeshStrategy strategy(DeviceMesh({2}, {"space"}, cpu_devices(2)));
  const auto refused = [&](const std::function<Tensor(const Tensor&)>& fn, const Dims& dims = {1, 1, 2, 1}) {
    return testing::error_of<Unimplemented>([&] {
      strategy.run([&](Replica& /*replica*/) {
        fn(strategy.experimental_split_to_logical_devices(torch::ones({2, 4, 8, 6}, torch::kDouble), dims));
      });
    });
  };
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(refused([](const Tensor& x) { return torch::cumprod(x, 2); }), "cannot be computed in parts");
  expect(refused([](const Tensor& x) {
           return torch::layer_norm(x, {8, 6});
         }),
         "aten::layer_norm of a tensor of [2, 4, 8, 6], cut in 2 parts along dimension 2, cannot be computed in "
         "parts");
  expect(refused([](const Tensor& x) { return torch::cat({x, x}, 2); }), "dimension 2, along which it joins, is cut");
  expect(refused([](const Tensor& x) {
           return torch::conv2d(x, torch::ones({4, 4, 9, 3}, torch::kDouble));
         }),
         "a window of 9 rows does not fit into the 8 rows of dimension 2, padded by 0 and 0");
  expect(refused(
             [](const Tensor& x) {
               return torch::conv2d(x, torch::ones({4, 4, 1, 1}, torch::kDouble));
             },
             {1, 2, 1, 1}),
         "dimension 1 is no dimension of the image");
  expect(refused([](const Tensor& x) {
           return torch::max_pool2d(x, {3, 3}, {2, 2}, 0, 1, /*ceil_mode=*/true);
         }),
         "ceil_mode");
  expect(refused([](const Tensor& x) { return torch::zeros({2, 4, 8, 6}, torch::kDouble).add_(x); }), "in place");
}

class Twice : public torch::autograd::Function<Twice> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* /*context*/, const Tensor& x) { return x.sum() * 2.0; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0].expand({2, 4, 8, 6}) * 2.0};
  }
};

class Doubled : public torch::autograd::Function<Doubled> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* /*context*/, const Tensor& x) { return x * 2.0; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0] * 2.0};
  }
};

// Its node would end at the divided tensor, and the image would get no gradient.
TEST(SpaceOperations, AFunctionOfOnesOwnIsNotSilentlyWithoutGradient) {
  const MeshStrategy strategy(DeviceMesh({2}, {"space"}, cpu_devices(2)));
  const std::string message = testing::error_of<Unimplemented>([&] {
    strategy.run([&](Replica& /*replica*/) {
      const Tensor x = torch::ones({2, 4, 8, 6}, torch::kDouble).requires_grad_();
      Twice::apply(strategy.experimental_split_to_logical_devices(x, {1, 1, 2, 1})).backward();
    });
  });
  EXPECT_NE(message.find("torch::autograd::Function"), std::string::npos) << message;
  const std::string other = testing::error_of<Unimplemented>([&] {
    strategy.run([&](Replica& /*replica*/) {
      const Tensor x = torch::ones({2, 4, 8, 6}, torch::kDouble).requires_grad_();
      Doubled::apply(strategy.experimental_split_to_logical_devices(x, {1, 1, 2, 1})).sum().backward();
    });
  });
  EXPECT_NE(other.find("came out of a torch::autograd::Function"), std::string::npos) << other;
}

}  // namespace
}  // namespace cohort::equivalence::space_operations_test
