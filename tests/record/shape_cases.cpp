// Cases of reductions, shapes, indexing and products.
#include "tests/record/cases.h"

namespace cohort::record {

using T = torch::Tensor;

std::vector<Case> reduction_cases() {
  const std::vector<int64_t> s{3, 4, 5};
  const torch::Tensor ties = below(3, s).to(torch::kDouble);
  return {
      one(
          "sum", [](const T& x) { return x.sum(); }, normal(s)),
      one(
          "sum dims",
          [](const T& x) {
            return x.sum(std::vector<int64_t>{0, -1}, true);
          },
          normal(s)),
      one(
          "sum of booleans", [](const T& x) { return x.sum(1); }, mask(s), false),
      one(
          "mean", [](const T& x) { return x.mean(); }, normal(s)),
      one(
          "mean dims", [](const T& x) { return x.mean(std::vector<int64_t>{1}); }, normal(s)),
      one(
          "prod", [](const T& x) { return x.prod(); }, positive({2, 3}), false),
      one(
          "prod dim", [](const T& x) { return x.prod(1, true); }, positive(s)),
      one(
          "amax",
          [](const T& x) {
            return x.amax({0, 2});
          },
          normal(s)),
      one(
          "amin", [](const T& x) { return x.amin({1}, true); }, normal(s)),
      one(
          "max", [](const T& x) { return x.max(); }, normal(s)),
      one(
          "min", [](const T& x) { return x.min(); }, normal(s)),
      one(
          "integer max", [](const T& x) { return (x - 20).max(); }, below(10, s), false),
      one(
          "max dim", [](const T& x) { return std::get<0>(x.max(1)); }, normal(s)),
      one(
          "max index", [](const T& x) { return std::get<1>(x.max(1)); }, ties, false),
      one(
          "min index", [](const T& x) { return std::get<1>(x.min(-1, true)); }, ties, false),
      one(
          "argmax", [](const T& x) { return x.argmax(); }, normal(s), false),
      one(
          "argmax dim", [](const T& x) { return x.argmax(2, true); }, normal(s), false),
      one(
          "argmin dim", [](const T& x) { return x.argmin(0); }, normal(s), false),
      one(
          "any",
          [](const T& x) {
            return torch::stack({x.any(), x.all()});
          },
          mask({2, 2}), false),
      one(
          "any dim", [](const T& x) { return x.any(1); }, mask(s), false),
      one(
          "all dim", [](const T& x) { return x.all(2, true); }, mask(s), false),
      one(
          "var",
          [](const T& x) {
            return x.var({1, 2}, true, true);
          },
          normal(s)),
      one(
          "var biased", [](const T& x) { return x.var({0}, false); }, normal(s)),
      one(
          "std", [](const T& x) { return x.std({1}, true); }, normal(s)),
      one(
          "var_mean",
          [](const T& x) {
            return std::get<0>(torch::var_mean(x, {1}, true)) + std::get<1>(torch::var_mean(x, {1}, true));
          },
          normal(s)),
      one(
          "norm", [](const T& x) { return x.norm(); }, normal(s)),
      one(
          "norm of a dtype", [](const T& x) { return x.norm(2, torch::kDouble); }, normal(s)),
      one(
          "norm 1",
          [](const T& x) {
            return x.norm(1, {1, 2});
          },
          normal(s)),
      one(
          "norm 3", [](const T& x) { return x.norm(3, {1}, true); }, normal(s)),
      one(
          "linalg norm", [](const T& x) { return torch::linalg_vector_norm(x, 2, c10::IntArrayRef{1}); }, normal(s)),
      one(
          "linalg norm inf", [](const T& x) { return torch::linalg_vector_norm(x, INFINITY); }, normal(s)),
      one(
          "logsumexp", [](const T& x) { return x.logsumexp({1}); }, normal(s)),
      one(
          "cumsum", [](const T& x) { return x.cumsum(1); }, normal(s)),
  };
}

std::vector<Case> shape_cases() {
  const std::vector<int64_t> s{3, 4, 5};
  return {
      one(
          "transpose", [](const T& x) { return x.transpose(0, 2) * 1.5; }, normal(s)),
      one(
          "permute",
          [](const T& x) {
            return x.permute({2, 0, 1}).contiguous() * 1.5;
          },
          normal(s)),
      one(
          "reshape",
          [](const T& x) {
            return x.transpose(0, 1).reshape({6, 10}) * 1.5;
          },
          normal(s)),
      one(
          "select", [](const T& x) { return x.select(1, -1) * 1.5; }, normal(s)),
      one(
          "slice", [](const T& x) { return x.slice(1, 1, 4, 2) * 1.5; }, normal(s)),
      one(
          "narrow", [](const T& x) { return x.narrow(2, 1, 3).transpose(0, 1) * 1.5; }, normal(s)),
      one(
          "expand",
          [](const T& x) {
            return x.unsqueeze(1).expand({3, 6, 4, 5}) * 1.5;
          },
          normal(s)),
      one(
          "squeeze", [](const T& x) { return x.squeeze() * 1.5; }, normal({3, 1, 4})),
      one(
          "diagonal", [](const T& x) { return x.diagonal(1, 1, 2) * 1.5; }, normal(s)),
      one(
          "unfold", [](const T& x) { return x.unfold(2, 3, 1) * 1.5; }, normal(s)),
      one(
          "as_strided",
          [](const T& x) {
            return x.as_strided({2, 3}, {7, 2}, 4) * 1.5;
          },
          normal(s), false),
      one(
          "split", [](const T& x) { return x.split(2, 2)[1] * 1.5; }, normal(s)),
      one(
          "unbind", [](const T& x) { return x.unbind(1)[2] * x.unbind(1)[0]; }, normal(s)),
      two(
          "cat",
          [](const T& x, const T& y) {
            return torch::cat({x, y, x}, 1);
          },
          normal(s), normal({3, 2, 5})),
      two(
          "cat of dtypes",
          [](const T& x, const T& y) {
            return torch::cat({x, y}, 0);
          },
          normal({3}), below(5, {2}), false),
      two(
          "stack",
          [](const T& x, const T& y) {
            return torch::stack({x, y}, 1);
          },
          normal(s), normal(s)),
      one(
          "pad",
          [](const T& x) {
            return torch::constant_pad_nd(x, {1, 2, 0, 3}, 0.4);
          },
          normal(s)),
      one(
          "pad cuts",
          [](const T& x) {
            return torch::constant_pad_nd(x, {-1, 2});
          },
          normal(s)),
      one(
          "flip",
          [](const T& x) {
            return x.flip({0, 2});
          },
          normal(s)),
      one(
          "roll",
          [](const T& x) {
            return x.roll({1, -2}, {0, 2});
          },
          normal(s)),
      one(
          "roll all", [](const T& x) { return x.roll(7); }, normal(s)),
      one(
          "tril", [](const T& x) { return x.tril(1); }, normal(s)),
      one(
          "triu", [](const T& x) { return x.triu(-1); }, normal(s)),
      one(
          "sort", [](const T& x) { return std::get<0>(x.sort(1, true)); }, normal(s)),
      one(
          "argsort", [](const T& x) { return std::get<1>(x.sort(true, 1, true)); }, below(3, s), false),
      one(
          "topk", [](const T& x) { return std::get<0>(x.topk(3, 2)); }, normal(s)),
      one(
          "topk index", [](const T& x) { return std::get<1>(x.topk(2, 1, false)); }, normal(s), false),
      one(
          "write to a slice",
          [](const T& x) {
            T y = x.clone();
            y.slice(1, 1, 3).mul_(3);
            y.select(2, 2).copy_(x.select(2, 0));
            return y;
          },
          normal(s)),
      one(
          "write to a diagonal",
          [](const T& x) {
            T y = x.clone();
            y.diagonal(0, 1, 2).mul_(3);
            return y;
          },
          normal(s)),
      one(
          "write to strides",
          [](const T& x) {
            T y = x.clone();
            y.view({-1}).slice(0, 2, 50, 7).zero_();
            y.transpose(0, 1).select(0, 3).add_(1);
            return y;
          },
          normal(s)),
  };
}

std::vector<Case> indexing_cases() {
  const std::vector<int64_t> s{6, 4, 5};
  return {
      two(
          "index_select", [](const T& x, const T& i) { return x.index_select(1, i); }, normal(s), below(4, {7})),
      two(
          "gather", [](const T& x, const T& i) { return x.gather(1, i); }, normal(s), below(4, {6, 3, 5})),
      two(
          "gather last", [](const T& x, const T& i) { return x.gather(-1, i); }, normal({6, 5}), below(5, {6, 1})),
      two(
          "scatter", [](const T& x, const T& i) { return x.scatter(1, i, 0.7); }, normal({6, 5}), below(5, {6, 2})),
      three(
          "scatter source", [](const T& x, const T& i, const T& y) { return x.scatter(1, i, y); }, normal({6, 5}),
          torch::arange(5).expand({6, 5}).clone(), normal({6, 5})),
      three(
          "scatter_add", [](const T& x, const T& i, const T& y) { return x.scatter_add(1, i, y); }, normal({6, 5}),
          below(5, {6, 5}), normal({6, 5})),
      three(
          "index_add", [](const T& x, const T& i, const T& y) { return x.index_add(1, i, y, 0.5); }, normal(s),
          below(4, {3}), normal({6, 3, 5})),
      two(
          "embedding", [](const T& w, const T& i) { return torch::embedding(w, i); }, normal({9, 5}), below(9, {2, 3})),
      two(
          "embedding padding", [](const T& w, const T& i) { return torch::embedding(w, i, 2, true); }, normal({4, 5}),
          below(4, {2, 8})),
      two(
          "index", [](const T& x, const T& i) { return x.index({i - 2}); }, normal(s), below(6, {2, 3})),
      three(
          "index two",
          [](const T& x, const T& i, const T& j) {
            return x.index({i, torch::indexing::Slice(), j});
          },
          normal(s), below(6, {3}), below(5, {2, 3})),
      three(
          "index beside",
          [](const T& x, const T& i, const T& j) {
            return x.index({torch::indexing::Slice(), i, j});
          },
          normal(s), below(4, {3}), below(5, {3})),
      three(
          "index_put",
          [](const T& x, const T& i, const T& y) {
            T z = x.clone();
            z.index_put_({i}, y);
            return z;
          },
          normal(s), torch::tensor({4, 1}), normal({2, 4, 5})),
      three(
          "index_put adds",
          [](const T& x, const T& i, const T& y) {
            T z = x.clone();
            z.index_put_({i, i}, y, true);
            return z;
          },
          normal(s), below(4, {7}), normal({7, 5})),
  };
}

std::vector<Case> linear_cases() {
  return {
      two(
          "mm", [](const T& x, const T& y) { return x.mm(y); }, normal({3, 4}), normal({4, 5})),
      two(
          "mm transposed", [](const T& x, const T& y) { return x.t().mm(y.t()); }, normal({4, 3}), normal({5, 4})),
      two(
          "bmm", [](const T& x, const T& y) { return x.bmm(y.transpose(1, 2)); }, normal({2, 3, 4}), normal({2, 5, 4})),
      two(
          "matmul", [](const T& x, const T& y) { return x.matmul(y); }, normal({2, 3, 4}), normal({4, 5})),
      two(
          "mv", [](const T& x, const T& y) { return x.mv(y); }, normal({3, 4}), normal({4})),
      two(
          "dot", [](const T& x, const T& y) { return x.dot(y); }, normal({4}), normal({4})),
      three(
          "linear", [](const T& x, const T& w, const T& b) { return torch::linear(x, w, b); }, normal({3, 4}),
          normal({5, 4}), normal({5})),
      three(
          "addmm", [](const T& b, const T& x, const T& y) { return torch::addmm(b, x, y, 0.3, 0.7); }, normal({5}),
          normal({3, 4}), normal({4, 5})),
      three(
          "baddbmm", [](const T& b, const T& x, const T& y) { return torch::baddbmm(b, x, y, 0.3, 0.7); },
          normal({2, 3, 5}), normal({2, 3, 4}), normal({2, 4, 5})),
      three(
          "addmv", [](const T& b, const T& x, const T& y) { return torch::addmv(b, x, y, 0.3, 0.7); }, normal({3}),
          normal({3, 4}), normal({4})),
      three(
          "attention",
          [](const T& q, const T& k, const T& v) {
            return (q.matmul(k.transpose(-2, -1)) / 2.0).softmax(-1).matmul(v);
          },
          normal({2, 3, 4, 5}), normal({2, 3, 6, 5}), normal({2, 3, 6, 5})),
  };
}

}  // namespace cohort::record
