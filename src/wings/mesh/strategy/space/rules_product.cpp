// Products of matrices, and rows of a table. A part of the rows gives the same part of the result; where the dimension
// is cut over which a product sums, each part gives a term of the sum.
#include <ATen/Functions.h>

#include "strategy/along_line.h"
#include "wings/mesh/strategy/space/rules.h"

namespace cohort::space {

namespace {

using torch::Tensor;

// Returns whether a dimension, counted from the last one, -1, is cut.
bool cuts(const Tensor& x, int64_t from_end) {
  return is_divided(x) && layout_of(x).is_cut(x.dim() + from_end);
}

// Returns whether a part of x, beside all of the other factor, gives a part of the product.
bool gives_rows(const Tensor& x, int64_t contracted) {
  return is_divided(x) && !cuts(x, contracted);
}

// Returns all of a tensor for use beside parts of another.
Tensor beside(const Tensor& x, const Layout& layout) {
  return shared(whole_of(x), layout);
}

// Multiplies parts of x, as first or second factor, with what every replica has.
Tensor rows_of_product(const Tensor& x, const Tensor& other, bool first) {
  const Layout& own = layout_of(x);
  Tensor factor = beside(other, own);
  for (const int64_t dim : own.cut_dims()) {  // matrices that are cut one from the other
    const int64_t there = other.dim() + dim - x.dim();
    if (dim - x.dim() >= -2 || there < 0 || other.size(there) == 1) continue;
    factor = factor.narrow(there, own.own(dim).begin, own.own(dim).size());
  }
  const Tensor part = first ? at::matmul(part_of(x), factor) : at::matmul(factor, part_of(x));
  Layout layout{.grid = own.grid, .sizes = part.sizes().vec(), .axes = {}};
  layout.axes.assign(layout.sizes.size(), kWhole);
  for (const int64_t dim : own.cut_dims()) {
    const auto at = static_cast<std::size_t>(layout.dim() + dim - x.dim());
    layout.sizes[at] = x.size(dim);
    layout.axes[at] = own.axes[static_cast<std::size_t>(dim)];
  }
  return make_divided(part, layout);
}

// Returns the part of `other` that goes with the own rows of a dimension over which a product sums.
Tensor term(const Tensor& other, int64_t dim, const Layout& layout, const Range& rows) {
  return shared(other, layout).narrow(other.dim() + dim, rows.begin, rows.size());
}

bool is_cut_once(const Tensor& x) {
  return is_divided(x) && layout_of(x).cut_dims().size() == 1;
}

// Multiplies matrices, of which one is divided, or both.
Tensor product_of(const Tensor& a, const Tensor& b) {
  const bool cut_a = cuts(a, -1), cut_b = cuts(b, -2);
  if ((cut_a || cut_b) && (cut_a ? is_cut_once(a) : !is_divided(a)) && (cut_b ? is_cut_once(b) : !is_divided(b))) {
    const Tensor& divided = cut_a ? a : b;
    const Layout& layout = layout_of(divided);
    const Range rows = layout.own(layout.cut_dims().front());
    const Tensor left = cut_a ? part_of(a) : term(a, -1, layout, rows);
    const Tensor right = cut_b ? part_of(b) : term(b, -2, layout, rows);
    return sum_over_line(at::matmul(left, right), *layout.grid.line);
  }
  if (gives_rows(a, -1)) return rows_of_product(a, b, /*first=*/true);
  if (gives_rows(b, -2)) return rows_of_product(b, a, /*first=*/false);
  return at::matmul(whole_of(a), whole_of(b));
}

// Vectors are matrices of one row or column.
void call_matmul(DividedCall& call) {
  const Tensor a = call.tensor(0);
  const Tensor b = call.tensor(1);
  Tensor product = product_of(a.dim() == 1 ? a.unsqueeze(0) : a, b.dim() == 1 ? b.unsqueeze(1) : b);
  if (b.dim() == 1) product = product.squeeze(-1);
  if (a.dim() == 1) product = product.squeeze(b.dim() == 1 ? -1 : -2);
  call.finish({product});
}

void call_linear(DividedCall& call) {
  const Tensor x = call.tensor(0);
  const Tensor weight = call.tensor(1);
  const Tensor bias = call.tensor(2);
  if (!is_divided(x) || is_divided(weight)) call.refuse("its weights are cut");
  const Layout layout = layout_of(x);
  if (cuts(x, -1)) {
    const Tensor product = product_of(x, weight.t());
    return call.finish({bias.defined() ? product + bias : product});
  }
  call[0] = part_of(x);
  call[1] = shared(weight, layout);
  call[2] = shared(bias, layout);
  call.forward();
  call.divide_results(layout);
}

void call_embedding(DividedCall& call) {
  const Tensor weight = call.tensor(0);
  const Tensor indices = call.tensor(1);
  if (is_divided(weight)) call.refuse("its weights are cut");
  if (call[3].toBool()) call.refuse("scale_grad_by_freq counts the indices of a part alone");
  if (call[4].toBool()) call.refuse("gradients of the kind `sparse` are not added up over the parts");
  Layout layout = layout_of(indices);
  layout.sizes.push_back(weight.size(1));
  layout.axes.push_back(kWhole);
  call[0] = shared(weight, layout);
  call[1] = part_of(indices);
  call.forward();
  call.divide_results(layout);
}

}  // namespace

void add_product_rules(Rules& rules) {
  for (const char* name : {"matmul", "mm", "bmm", "mv"}) rules[name] = call_matmul;
  rules["linear"] = call_linear;
  rules["aten::embedding"] = call_embedding;
}

}  // namespace cohort::space
