// LibTorch's linear layer with ReLU is three nodes of autograd (transpose, product, ReLU) and, for gradients, four more
// operations over small tensors, whose dispatch and allocation take longer than their arithmetic. Here the passes over
// memory beside the products are two, of vector code (ops/kernels) that takes pointers to plain CPU tensors, and the
// gradient that comes is overwritten where nobody else has it.
#include "ops/dense_product.h"

#include <ATen/Functions.h>
#include <ATen/ops/as_strided_native.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <utility>

#include "base/libtorch_compat.h"
#include "base/parallel.h"
#include "ops/adds_gradient.h"
#include "ops/kernels/kernels.h"
#include "ops/line_backward.h"
#include "ops/matrix_product.h"
#include "ops/plain_operation.h"
#include "ops/plain_tensor.h"

namespace cohort {

namespace {

using torch::autograd::variable_list;

// Calls fn(first column, the columns) for parts of a contiguous matrix, on the threads that an operation may use. The
// results do not depend on how it is divided.
template <typename Fn>
void each_columns(const torch::Tensor& matrix, const Fn& fn) {
  constexpr int64_t kElements = 1 << 15;  // of a thread at least, as at::parallel_for has them in LibTorch's kernels
  constexpr int64_t kColumns = 64;
  const int64_t rows = matrix.size(0);
  const int64_t stride = matrix.size(1);
  parallel_for(stride, std::max(kColumns, kElements / rows), [&](int64_t begin, int64_t end) {
    fn(begin, kernels::Columns{.rows = rows, .columns = end - begin, .stride = stride});
  });
}

// Returns a view of a contiguous matrix, where autograd does not look: transpose() asks the dispatcher four times.
torch::Tensor transposed(const torch::Tensor& matrix) {
  const int64_t columns = matrix.size(1);
  return at::native::as_strided_tensorimpl(matrix, {columns, matrix.size(0)}, {1, columns});
}

torch::Tensor rows_of(const torch::Tensor& x) {
  return x.dim() == 2 ? x : x.view({-1, x.size(-1)});
}

// Calls multiply(part of the result, of a, of b) for the product of a and b: once, or for parts of the larger one of
// columns and rows, on a team or on the threads that an operation may use. A BLAS's own threads are off
// (base/cpu_threads.h).
template <typename Multiply>
void each_part(const torch::Tensor& result, const torch::Tensor& a, const torch::Tensor& b, const Multiply& multiply) {
  // A part has so many rows or columns that it runs nearly as fast as the whole. Its products of numbers take some
  // microseconds, as long as another thread needs to begin.
  constexpr int64_t kLeast = 128, kProducts = 1 << 19;
  const int64_t dim = result.size(0) > result.size(1) ? 0 : 1;
  const int64_t size = result.size(dim);
  const int64_t grain = std::max(kLeast, kProducts / std::max<int64_t>(1, result.size(1 - dim) * a.size(1)));
  parallel_for(size, grain, [&](int64_t begin, int64_t end) {
    const torch::NoGradGuard no_grad;  // of whichever thread this is
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    if (end - begin == size) return multiply(result, a, b);
    const torch::Tensor part = result.narrow(dim, begin, end - begin);
    multiply(part, dim == 0 ? a.narrow(0, begin, end - begin) : a, dim == 0 ? b : b.narrow(1, begin, end - begin));
  });
}

torch::Tensor product(const torch::Tensor& a, const torch::Tensor& b) {
  torch::Tensor result = empty_plain({a.size(0), b.size(1)}, a.scalar_type());
  each_part(result, a, b, store_product);
  return result;
}

class DenseBackward final : public LineNode, public AddsGradient {
 public:
  DenseBackward(torch::autograd::edge_list&& edges, const torch::Tensor& x, const torch::Tensor& weight)
      : LineNode(std::move(edges)),
        AddsGradient(kWeight),
        x_(x, /*is_output=*/false),
        weight_(weight, /*is_output=*/false) {}

  // Saves the result of a ReLU without its place in the graph: only its zeros count, which have no gradient.
  void save(const torch::Tensor& y) { y_ = torch::autograd::SavedVariable(y.tensor_data(), /*is_output=*/false); }

  variable_list apply(variable_list&& gradients) override {
    torch::Tensor gradient = std::move(gradients.front());
    if (!gradient.defined()) return variable_list(3);
    const torch::Tensor x = x_.unpack();
    const torch::Tensor weight = weight_.unpack();
    const torch::Tensor y = y_.unpack();
    if (at::GradMode::is_enabled() || !is_plain(gradient)) return by_operations(gradient, x, weight, y);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    torch::Tensor bias;
    torch::Tensor passed =
        !y.defined() || is_own(gradient) ? gradient : empty_plain(gradient.sizes(), gradient.scalar_type());
    if (y.defined() || task_should_compute_output(kBias)) {
      bias = empty_plain({weight.size(0)}, weight.scalar_type());
      each_columns(rows_of(gradient), [&](int64_t from, const kernels::Columns& columns) {
        kernels::bias_gradient(element_at(passed, from), element_at(gradient, from),
                               y.defined() ? element_at(y, from) : nullptr, element_at(bias, from), columns,
                               weight.scalar_type());
      });
    }
    const torch::Tensor rows = rows_of(passed);
    variable_list made(3);
    if (task_should_compute_output(0)) made[0] = product(rows, weight);
    if (x.dim() != 2 && made[0].defined()) made[0] = at::_unsafe_view(made[0], x.sizes());
    if (task_should_compute_output(kWeight)) made[kWeight] = weight_gradient(rows, x);
    made[kBias] = std::move(bias);
    return made;
  }

  void release_variables() override {
    x_.reset_data();
    weight_.reset_data();
    y_.reset_data();
    sum_ = nullptr;
  }
  std::string name() const override { return "DenseBackward"; }

 private:
  static constexpr std::size_t kWeight = 1, kBias = 2;  // among the inputs

  torch::Tensor weight_gradient(const torch::Tensor& rows, const torch::Tensor& x) const {
    torch::Tensor sum = sum_ ? sum_() : torch::Tensor();
    if (!sum.defined()) return product(transposed(rows), rows_of(x));
    each_part(sum, transposed(rows), rows_of(x), add_product);
    return {};
  }

  // Computes the same by operations that have gradients themselves.
  variable_list by_operations(const torch::Tensor& gradient, const torch::Tensor& x, const torch::Tensor& weight,
                              const torch::Tensor& y) {
    const torch::Tensor passed = y.defined() ? at::threshold_backward(gradient, y, 0) : gradient;
    const torch::Tensor rows = passed.reshape({-1, passed.size(-1)});
    return {task_should_compute_output(0) ? at::mm(rows, weight).view(x.sizes()) : torch::Tensor(),
            task_should_compute_output(1) ? at::mm(rows.t(), rows_of(x)) : torch::Tensor(), rows.sum(0)};
  }

  torch::autograd::SavedVariable x_, weight_, y_;
};

torch::Tensor biased_product(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                             bool relu) {
  torch::Tensor y = product(x, transposed(weight));
  each_columns(y, [&](int64_t from, const kernels::Columns& columns) {
    kernels::add_bias(element_at(y, from), element_at(bias, from), columns, relu, weight.scalar_type());
  });
  return y;
}

}  // namespace

torch::Tensor dense_product(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, bool relu) {
  const c10::ScalarType dtype = weight.scalar_type();
  const bool fits = kernels::has_kernels(dtype) && x.scalar_type() == dtype && bias.defined() &&
                    bias.scalar_type() == dtype && weight.dim() == 2 && bias.dim() == 1 &&
                    bias.size(0) == weight.size(0) && x.numel() > 0 && weight.numel() > 0;
  if (!fits) return {};
  const PlainOperation operation(x, weight, bias);
  if (!operation.begins()) return {};
  torch::Tensor y;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    y = biased_product(rows_of(x), weight, bias, relu);
    if (x.dim() != 2) {
      std::vector<int64_t> sizes = x.sizes().vec();
      sizes.back() = weight.size(0);
      y = at::_unsafe_view(y, sizes);
    }
  }
  if (!torch::autograd::compute_requires_grad(x, weight, bias)) return y;
  auto node = compat::make_grad_fn<DenseBackward>(torch::autograd::collect_next_edges(x, weight, bias), x, weight);
  torch::autograd::set_history(y, node);
  if (relu) node->save(y);
  return y;
}

torch::Tensor affine(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
  const torch::Tensor product = dense_product(x, weight, bias, /*relu=*/false);
  return product.defined() ? product : at::linear(x, weight, bias);
}

torch::Tensor affine(const torch::nn::Linear& layer, const torch::Tensor& x) {
  return affine(x, layer->weight, layer->bias);
}

}  // namespace cohort
