// Cases of reductions, shapes, indexing and products.
#include "tests/wings/xla/record/cases.h"

namespace cohort::record {

using T = torch::Tensor;

std::vector<Case> reduction_cases() {
  const std::vector<int64_t> s{3, 4, 5};
  const torch::Tensor ties = below(3, s).to(torch::kDouble);
  return {
      one("sum", normal(s), [](const T& x) { return x.sum(); }),
      one("sum dims", normal(s),
          [](const T& x) {
            return x.sum(std::vector<int64_t>{0, -1}, true);
          }),
      fixed(one("sum of booleans", mask(s), [](const T& x) { return x.sum(1); })),
      one("mean", normal(s), [](const T& x) { return x.mean(); }),
      one("mean dims", normal(s), [](const T& x) { return x.mean(std::vector<int64_t>{1}); }),
      fixed(one("prod", positive({2, 3}), [](const T& x) { return x.prod(); })),
      one("prod dim", positive(s), [](const T& x) { return x.prod(1, true); }),
      one("amax", normal(s),
          [](const T& x) {
            return x.amax({0, 2});
          }),
      one("amin", normal(s), [](const T& x) { return x.amin({1}, true); }),
      one("max", normal(s), [](const T& x) { return x.max(); }),
      one("min", normal(s), [](const T& x) { return x.min(); }),
      fixed(one("integer max", below(10, s), [](const T& x) { return (x - 20).max(); })),
      one("max dim", normal(s), [](const T& x) { return std::get<0>(x.max(1)); }),
      fixed(one("max index", ties, [](const T& x) { return std::get<1>(x.max(1)); })),
      fixed(one("min index", ties, [](const T& x) { return std::get<1>(x.min(-1, true)); })),
      fixed(one("argmax", normal(s), [](const T& x) { return x.argmax(); })),
      fixed(one("argmax dim", normal(s), [](const T& x) { return x.argmax(2, true); })),
      fixed(one("argmin dim", normal(s), [](const T& x) { return x.argmin(0); })),
      fixed(one("any", mask({2, 2}),
                [](const T& x) {
                  return torch::stack({x.any(), x.all()});
                })),
      fixed(one("any dim", mask(s), [](const T& x) { return x.any(1); })),
      fixed(one("all dim", mask(s), [](const T& x) { return x.all(2, true); })),
      one("var", normal(s),
          [](const T& x) {
            return x.var({1, 2}, true, true);
          }),
      one("var biased", normal(s), [](const T& x) { return x.var({0}, false); }),
      one("std", normal(s), [](const T& x) { return x.std({1}, true); }),
      one("var_mean", normal(s),
          [](const T& x) {
            return std::get<0>(torch::var_mean(x, {1}, true)) + std::get<1>(torch::var_mean(x, {1}, true));
          }),
      one("norm", normal(s), [](const T& x) { return x.norm(); }),
      one("norm of a dtype", normal(s), [](const T& x) { return x.norm(2, torch::kDouble); }),
      one("norm 1", normal(s),
          [](const T& x) {
            return x.norm(1, {1, 2});
          }),
      one("norm 3", normal(s), [](const T& x) { return x.norm(3, {1}, true); }),
      one("linalg norm", normal(s), [](const T& x) { return torch::linalg_vector_norm(x, 2, c10::IntArrayRef{1}); }),
      one("linalg norm inf", normal(s), [](const T& x) { return torch::linalg_vector_norm(x, INFINITY); }),
      one("logsumexp", normal(s), [](const T& x) { return x.logsumexp({1}); }),
      one("cumsum", normal(s), [](const T& x) { return x.cumsum(1); }),
  };
}

std::vector<Case> shape_cases() {
  const std::vector<int64_t> s{3, 4, 5};
  return {
      one("transpose", normal(s), [](const T& x) { return x.transpose(0, 2) * 1.5; }),
      one("permute", normal(s),
          [](const T& x) {
            return x.permute({2, 0, 1}).contiguous() * 1.5;
          }),
      one("reshape", normal(s),
          [](const T& x) {
            return x.transpose(0, 1).reshape({6, 10}) * 1.5;
          }),
      one("select", normal(s), [](const T& x) { return x.select(1, -1) * 1.5; }),
      one("slice", normal(s), [](const T& x) { return x.slice(1, 1, 4, 2) * 1.5; }),
      one("narrow", normal(s), [](const T& x) { return x.narrow(2, 1, 3).transpose(0, 1) * 1.5; }),
      one("expand", normal(s),
          [](const T& x) {
            return x.unsqueeze(1).expand({3, 6, 4, 5}) * 1.5;
          }),
      one("squeeze", normal({3, 1, 4}), [](const T& x) { return x.squeeze() * 1.5; }),
      one("diagonal", normal(s), [](const T& x) { return x.diagonal(1, 1, 2) * 1.5; }),
      one("unfold", normal(s), [](const T& x) { return x.unfold(2, 3, 1) * 1.5; }),
      fixed(one("as_strided", normal(s),
                [](const T& x) {
                  return x.as_strided({2, 3}, {7, 2}, 4) * 1.5;
                })),
      one("split", normal(s), [](const T& x) { return x.split(2, 2)[1] * 1.5; }),
      one("unbind", normal(s), [](const T& x) { return x.unbind(1)[2] * x.unbind(1)[0]; }),
      two("cat", normal(s), normal({3, 2, 5}),
          [](const T& x, const T& y) {
            return torch::cat({x, y, x}, 1);
          }),
      fixed(two("cat of dtypes", normal({3}), below(5, {2}),
                [](const T& x, const T& y) {
                  return torch::cat({x, y}, 0);
                })),
      two("stack", normal(s), normal(s),
          [](const T& x, const T& y) {
            return torch::stack({x, y}, 1);
          }),
      one("pad", normal(s),
          [](const T& x) {
            return torch::constant_pad_nd(x, {1, 2, 0, 3}, 0.4);
          }),
      one("pad cuts", normal(s),
          [](const T& x) {
            return torch::constant_pad_nd(x, {-1, 2});
          }),
  };
}

std::vector<Case> order_cases() {
  const std::vector<int64_t> s{3, 4, 5};
  return {
      one("reflection pad 1d", normal({2, 3, 5}),
          [](const T& x) {
            return torch::reflection_pad1d(x, {2, 4});
          }),
      one("reflection pad 2d", normal({2, 3, 4, 5}),
          [](const T& x) {
            return torch::reflection_pad2d(x, {1, 4, 3, 0});
          }),
      one("reflection pad 3d", normal({2, 3, 4, 5}),
          [](const T& x) {
            return torch::reflection_pad3d(x, {1, 2, 3, 1, 2, 0});
          }),
      one("reflection pad cuts", normal({2, 3, 4, 5}),
          [](const T& x) {
            return torch::reflection_pad2d(x, {-1, 3, 1, -2});
          }),
      one("replication pad 1d", normal({2, 3, 5}),
          [](const T& x) {
            return torch::replication_pad1d(x, {2, 7});
          }),
      one("replication pad 2d", normal({3, 4, 5}),
          [](const T& x) {
            return torch::replication_pad2d(x, {0, 6, 3, 1});
          }),
      one("replication pad 3d", normal({2, 3, 4, 5, 2}),
          [](const T& x) {
            return torch::replication_pad3d(x, {1, 2, 3, 1, 2, 5});
          }),
      one("replication pad cuts", normal({2, 3, 4, 5}),
          [](const T& x) {
            return torch::replication_pad2d(x, {-1, 3, 1, -2});
          }),
      one("flip", normal(s),
          [](const T& x) {
            return x.flip({0, 2});
          }),
      one("roll", normal(s),
          [](const T& x) {
            return x.roll({1, -2}, {0, 2});
          }),
      one("roll all", normal(s), [](const T& x) { return x.roll(7); }),
      one("tril", normal(s), [](const T& x) { return x.tril(1); }),
      one("triu", normal(s), [](const T& x) { return x.triu(-1); }),
      one("sort", normal(s), [](const T& x) { return std::get<0>(x.sort(1, true)); }),
      fixed(one("argsort", below(3, s), [](const T& x) { return std::get<1>(x.sort(true, 1, true)); })),
      one("topk", normal(s), [](const T& x) { return std::get<0>(x.topk(3, 2)); }),
      fixed(one("topk index", normal(s), [](const T& x) { return std::get<1>(x.topk(2, 1, false)); })),
  };
}

std::vector<Case> writing_cases() {
  const std::vector<int64_t> s{3, 4, 5};
  return {
      one("write to a slice", normal(s),
          [](const T& x) {
            T y = x.clone();
            y.slice(1, 1, 3).mul_(3);
            y.select(2, 2).copy_(x.select(2, 0));
            return y;
          }),
      one("write to a diagonal", normal(s),
          [](const T& x) {
            T y = x.clone();
            y.diagonal(0, 1, 2).mul_(3);
            return y;
          }),
      one("write to strides", normal(s),
          [](const T& x) {
            T y = x.clone();
            y.view({-1}).slice(0, 2, 50, 7).zero_();
            y.transpose(0, 1).select(0, 3).add_(1);
            return y;
          }),
  };
}

std::vector<Case> indexing_cases() {
  const std::vector<int64_t> s{6, 4, 5};
  return {
      two("index_select", normal(s), below(4, {7}), [](const T& x, const T& i) { return x.index_select(1, i); }),
      two("gather", normal(s), below(4, {6, 3, 5}), [](const T& x, const T& i) { return x.gather(1, i); }),
      two("gather last", normal({6, 5}), below(5, {6, 1}), [](const T& x, const T& i) { return x.gather(-1, i); }),
      two("scatter", normal({6, 5}), below(5, {6, 2}), [](const T& x, const T& i) { return x.scatter(1, i, 0.7); }),
      three("scatter source", normal({6, 5}), torch::arange(5).expand({6, 5}).clone(), normal({6, 5}),
            [](const T& x, const T& i, const T& y) { return x.scatter(1, i, y); }),
      three("scatter_add", normal({6, 5}), below(5, {6, 5}), normal({6, 5}),
            [](const T& x, const T& i, const T& y) { return x.scatter_add(1, i, y); }),
      three("index_add", normal(s), below(4, {3}), normal({6, 3, 5}),
            [](const T& x, const T& i, const T& y) { return x.index_add(1, i, y, 0.5); }),
      two("embedding", normal({9, 5}), below(9, {2, 3}), [](const T& w, const T& i) { return torch::embedding(w, i); }),
      two("embedding padding", normal({4, 5}), below(4, {2, 8}),
          [](const T& w, const T& i) { return torch::embedding(w, i, 2, true); }),
      two("index", normal(s), below(6, {2, 3}), [](const T& x, const T& i) { return x.index({i - 2}); }),
      three("index two", normal(s), below(6, {3}), below(5, {2, 3}),
            [](const T& x, const T& i, const T& j) {
              return x.index({i, torch::indexing::Slice(), j});
            }),
      three("index beside", normal(s), below(4, {3}), below(5, {3}),
            [](const T& x, const T& i, const T& j) {
              return x.index({torch::indexing::Slice(), i, j});
            }),
      three("index_put", normal(s), torch::tensor({4, 1}), normal({2, 4, 5}),
            [](const T& x, const T& i, const T& y) {
              T z = x.clone();
              z.index_put_({i}, y);
              return z;
            }),
      three("index_put adds", normal(s), below(4, {7}), normal({7, 5}),
            [](const T& x, const T& i, const T& y) {
              T z = x.clone();
              z.index_put_({i, i}, y, true);
              return z;
            }),
  };
}

std::vector<Case> linear_cases() {
  return {
      two("mm", normal({3, 4}), normal({4, 5}), [](const T& x, const T& y) { return x.mm(y); }),
      two("mm transposed", normal({4, 3}), normal({5, 4}), [](const T& x, const T& y) { return x.t().mm(y.t()); }),
      two("bmm", normal({2, 3, 4}), normal({2, 5, 4}), [](const T& x, const T& y) { return x.bmm(y.transpose(1, 2)); }),
      two("matmul", normal({2, 3, 4}), normal({4, 5}), [](const T& x, const T& y) { return x.matmul(y); }),
      two("mv", normal({3, 4}), normal({4}), [](const T& x, const T& y) { return x.mv(y); }),
      two("dot", normal({4}), normal({4}), [](const T& x, const T& y) { return x.dot(y); }),
      three("linear", normal({3, 4}), normal({5, 4}), normal({5}),
            [](const T& x, const T& w, const T& b) { return torch::linear(x, w, b); }),
      three("addmm", normal({5}), normal({3, 4}), normal({4, 5}),
            [](const T& b, const T& x, const T& y) { return torch::addmm(b, x, y, 0.3, 0.7); }),
      three("baddbmm", normal({2, 3, 5}), normal({2, 3, 4}), normal({2, 4, 5}),
            [](const T& b, const T& x, const T& y) { return torch::baddbmm(b, x, y, 0.3, 0.7); }),
      three("addmv", normal({3}), normal({3, 4}), normal({4}),
            [](const T& b, const T& x, const T& y) { return torch::addmv(b, x, y, 0.3, 0.7); }),
      three("attention", normal({2, 3, 4, 5}), normal({2, 3, 6, 5}), normal({2, 3, 6, 5}),
            [](const T& q, const T& k, const T& v) {
              return (q.matmul(k.transpose(-2, -1)) / 2.0).softmax(-1).matmul(v);
            }),
  };
}

}  // namespace cohort::record
