// Cases of convolutions, pooling, normalization and losses.
#include "tests/wings/xla/record/cases.h"

namespace cohort::record {

using T = torch::Tensor;
namespace F = torch::nn::functional;

std::vector<Case> convolution_cases() {
  return {
      three("conv2d", normal({2, 3, 7, 6}), normal({4, 3, 3, 2}), normal({4}),
            [](const T& x, const T& w, const T& b) { return torch::conv2d(x, w, b); }),
      two("conv2d strided", normal({2, 3, 8, 9}), normal({4, 3, 3, 3}),
          [](const T& x, const T& w) {
            return torch::conv2d(x, w, {}, {2, 3}, {1, 2});
          }),
      two("conv2d dilated", normal({2, 3, 11, 10}), normal({4, 3, 3, 3}),
          [](const T& x, const T& w) { return torch::conv2d(x, w, {}, 2, 2, 2); }),
      two("conv2d grouped", normal({2, 4, 8, 7}), normal({6, 2, 3, 3}),
          [](const T& x, const T& w) { return torch::conv2d(x, w, {}, 2, 1, 1, 2); }),
      two("conv2d depthwise", normal({2, 4, 6, 6}), normal({8, 1, 3, 3}),
          [](const T& x, const T& w) { return torch::conv2d(x, w, {}, 1, 1, 1, 4); }),
      two("conv2d 1x1", normal({2, 3, 7, 7}), normal({4, 3, 1, 1}),
          [](const T& x, const T& w) { return torch::conv2d(x, w, {}, 2); }),
      three("conv1d", normal({2, 3, 9}), normal({4, 3, 3}), normal({4}),
            [](const T& x, const T& w, const T& b) { return torch::conv1d(x, w, b, 2, 1); }),
      two("conv3d", normal({1, 2, 4, 5, 3}), normal({3, 2, 3, 2, 2}),
          [](const T& x, const T& w) { return torch::conv3d(x, w, {}, 1, 1); }),
      three("transposed", normal({2, 3, 4, 5}), normal({3, 4, 3, 3}), normal({4}),
            [](const T& x, const T& w, const T& b) { return torch::conv_transpose2d(x, w, b, 2, 1, 1); }),
      two("transposed grouped", normal({2, 4, 4, 5}), normal({4, 3, 3, 2}),
          [](const T& x, const T& w) { return torch::conv_transpose2d(x, w, {}, 2, 0, 0, 2, 2); }),
  };
}

std::vector<Case> pooling_cases() {
  return {
      one("max_pool2d", normal({2, 3, 8, 6}), [](const T& x) { return torch::max_pool2d(x, 2); }),
      one("max_pool2d of ResNet", normal({2, 3, 9, 8}), [](const T& x) { return torch::max_pool2d(x, 3, 2, 1); }),
      one("max_pool2d leaves over", normal({2, 3, 8, 7}),
          [](const T& x) {
            return torch::max_pool2d(x, {3, 2}, {3, 2});
          }),
      one("max_pool2d ceil", normal({2, 3, 8, 8}), [](const T& x) { return torch::max_pool2d(x, 3, 2, 0, 1, true); }),
      one("max_pool2d dilated", normal({2, 3, 8, 8}), [](const T& x) { return torch::max_pool2d(x, 2, 1, 1, 2); }),
      fixed(one("max_pool2d indices", below(4, {2, 3, 8, 8}).to(torch::kDouble),
                [](const T& x) { return std::get<1>(torch::max_pool2d_with_indices(x, 3, 2, 1)); })),
      one("max_pool2d ties", below(3, {2, 3, 8, 8}).to(torch::kDouble),
          [](const T& x) { return torch::max_pool2d(x, 3, 2, 1); }),
      one("max_pool2d one image", normal({3, 6, 6}), [](const T& x) { return torch::max_pool2d(x, 2); }),
      one("avg_pool2d", normal({2, 3, 8, 6}), [](const T& x) { return torch::avg_pool2d(x, 2); }),
      one("avg_pool2d padded", normal({2, 3, 9, 8}), [](const T& x) { return torch::avg_pool2d(x, 3, 2, 1); }),
      one("avg_pool2d own count", normal({2, 3, 9, 8}),
          [](const T& x) { return torch::avg_pool2d(x, 3, 2, 1, false, false); }),
      one("avg_pool2d ceil", normal({2, 3, 8, 8}), [](const T& x) { return torch::avg_pool2d(x, 3, 2, 1, true); }),
      one("avg_pool2d divisor", normal({2, 3, 8, 8}),
          [](const T& x) { return torch::avg_pool2d(x, 3, 2, 1, false, true, 5); }),
      one("upsample_nearest2d", normal({2, 3, 3, 5}),
          [](const T& x) {
            return torch::upsample_nearest2d(x, {6, 15});
          }),
      one("upsample_bilinear2d", normal({2, 3, 3, 5}),
          [](const T& x) {
            return torch::upsample_bilinear2d(x, {7, 4}, false);
          }),
      one("upsample_bilinear2d corners", normal({2, 3, 3, 5}),
          [](const T& x) {
            return torch::upsample_bilinear2d(x, {6, 8}, true);
          }),
      one("upsample_bilinear2d by scales", normal({2, 3, 3, 5}),
          [](const T& x) {
            return F::interpolate(x, F::InterpolateFuncOptions()
                                         .scale_factor(std::vector<double>{2.5, 2})
                                         .mode(torch::kBilinear)
                                         .align_corners(false));
          }),
      one("upsample_nearest2d by scales", normal({2, 3, 3, 5}),
          [](const T& x) {
            return F::interpolate(
                x, F::InterpolateFuncOptions().scale_factor(std::vector<double>{2, 3}).mode(torch::kNearest));
          }),
      one("adaptive to 1", normal({2, 3, 7, 5}),
          [](const T& x) {
            return torch::adaptive_avg_pool2d(x, {1, 1});
          }),
      one("adaptive", normal({2, 3, 7, 5}),
          [](const T& x) {
            return torch::adaptive_avg_pool2d(x, {3, 2});
          }),
  };
}

// Batch normalization with its running statistics as a second and third result.
Case batch_norm(const std::string& name, bool training, c10::IntArrayRef sizes) {
  const int64_t c = sizes[1];
  return {name,
          [training](const Tensors& in) {
            const T mean = in[3].detach().clone();
            const T var = in[4].detach().clone();
            const T y = torch::batch_norm(in[0], in[1], in[2], mean, var, training, 0.1, 1e-5, false);
            return Tensors{y, mean, var};
          },
          {normal(sizes) * 2 + 1, positive({c}), normal({c}), normal({c}), positive({c})}};
}

std::vector<Case> normalization_cases() {
  std::vector<Case> cases{
      batch_norm("batch_norm", true, {4, 3, 5, 6}),
      batch_norm("batch_norm evaluated", false, {4, 3, 5, 6}),
      batch_norm("batch_norm of vectors", true, {6, 3}),
      one("batch_norm bare", normal({4, 3, 5}),
          [](const T& x) { return torch::batch_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false); }),
      three("layer_norm", normal({2, 3, 4, 5}), normal({4, 5}), normal({4, 5}),
            [](const T& x, const T& w, const T& b) {
              return torch::layer_norm(x, {4, 5}, w, b);
            }),
      one("layer_norm bare", normal({2, 3, 5}), [](const T& x) { return torch::layer_norm(x, {5}); }),
      three("group_norm", normal({2, 4, 3, 3}), normal({4}), normal({4}),
            [](const T& x, const T& w, const T& b) { return torch::group_norm(x, 2, w, b); }),
      one("softmax", normal({3, 4, 5}), [](const T& x) { return x.softmax(1); }),
      one("softmax last", normal({3, 4}), [](const T& x) { return x.softmax(-1); }),
      one("log_softmax", normal({3, 4, 5}), [](const T& x) { return x.log_softmax(1); }),
  };
  return cases;
}

std::vector<Case> loss_cases() {
  std::vector<Case> cases;
  for (const int64_t r : {at::Reduction::None, at::Reduction::Mean, at::Reduction::Sum}) {
    const std::string n = r == at::Reduction::None ? " none" : r == at::Reduction::Mean ? " mean" : " sum";
    cases.push_back(two("cross_entropy" + n, normal({6, 5}), below(5, {6}),
                        [r](const T& x, const T& y) { return torch::cross_entropy_loss(x, y, {}, r); }));
    cases.push_back(three(
        "nll_loss" + n, normal({6, 5}), below(5, {6}), positive({5}),
        [r](const T& x, const T& y, const T& w) { return torch::nll_loss(x.log_softmax(1), y, w.detach(), r, 2); }));
    cases.push_back(two("nll_loss2d" + n, normal({2, 5, 3, 4}), below(5, {2, 3, 4}),
                        [r](const T& x, const T& y) { return torch::nll_loss_nd(x.log_softmax(1), y, {}, r, 1); }));
    cases.push_back(two("mse_loss" + n, normal({6, 5}), normal({6, 5}),
                        [r](const T& x, const T& y) { return torch::mse_loss(x, y, r); }));
    cases.push_back(two("l1_loss" + n, normal({6, 5}), normal({6, 5}),
                        [r](const T& x, const T& y) { return torch::l1_loss(x, y, r); }));
    cases.push_back(two("smooth_l1_loss" + n, normal({6, 5}), normal({6, 5}),
                        [r](const T& x, const T& y) { return torch::smooth_l1_loss(x, y, r, 0.7); }));
    cases.push_back(two("huber_loss" + n, normal({6, 5}), normal({6, 5}),
                        [r](const T& x, const T& y) { return torch::huber_loss(x, y, r, 0.7); }));
    cases.push_back(
        two("binary_cross_entropy" + n, normal({6, 5}), mask({6, 5}).to(torch::kDouble),
            [r](const T& x, const T& y) { return torch::binary_cross_entropy(x.sigmoid(), y.detach(), {}, r); }));
    cases.push_back(
        two("with logits" + n, normal({6, 5}), mask({6, 5}).to(torch::kDouble),
            [r](const T& x, const T& y) { return torch::binary_cross_entropy_with_logits(x, y.detach(), {}, {}, r); }));
    cases.push_back(two("kl_div" + n, normal({6, 5}), positive({6, 5}),
                        [r](const T& x, const T& y) { return torch::kl_div(x.log_softmax(1), y.detach(), r); }));
  }
  cases.push_back(two("smoothed", normal({6, 5}), below(5, {6}), [](const T& x, const T& y) {
    return torch::cross_entropy_loss(x, y, {}, at::Reduction::Sum, -100, 0.1);
  }));
  cases.push_back(two("cross_entropy of probabilities", normal({6, 5}), normal({6, 5}),
                      [](const T& x, const T& y) { return torch::cross_entropy_loss(x, y.softmax(1)); }));
  return cases;
}

}  // namespace cohort::record
