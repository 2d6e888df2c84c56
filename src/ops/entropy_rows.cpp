// For a few classes LibTorch's operations and their nodes take ten times as long as the arithmetic. Here vector code
// (ops/kernels) takes pointers to plain CPU tensors. Backward computes the gradient from the logits in one pass, so
// that no other tensor of their size is kept.
#include "ops/entropy_rows.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/libtorch_compat.h"
#include "base/parallel.h"
#include "ops/kernels/entropy.h"
#include "ops/kernels/kernels.h"
#include "ops/line_backward.h"
#include "ops/plain_operation.h"
#include "ops/plain_tensor.h"

namespace cohort {

namespace {

using torch::autograd::variable_list;

// Calls fn(first row, the rows) for parts of the rows, on the threads that an operation may use.
template <typename Fn>
void each_rows(const torch::Tensor& logits, const torch::Tensor& labels, const Fn& fn) {
  constexpr int64_t kElements = 1 << 14;  // of a thread at least
  const int64_t classes = logits.size(1);
  parallel_for(logits.size(0), std::max<int64_t>(1, kElements / classes), [&](int64_t begin, int64_t end) {
    fn(begin, kernels::Labelled{.logits = element_at(logits, begin * classes),
                                .labels = labels.data_ptr<int64_t>() + begin,
                                .rows = end - begin,
                                .classes = classes});
  });
}

double number_of(const torch::Tensor& scalar) {
  return scalar.scalar_type() == torch::kFloat ? static_cast<double>(*scalar.data_ptr<float>())
                                               : *scalar.data_ptr<double>();
}

torch::Tensor scalar_of(double number, const torch::Tensor& like) {
  torch::Tensor scalar = empty_plain({}, like.scalar_type());
  if (like.scalar_type() == torch::kFloat) {
    *scalar.data_ptr<float>() = static_cast<float>(number);
  } else {
    *scalar.data_ptr<double>() = number;
  }
  return scalar;
}

class EntropyBackward final : public LineNode {
 public:
  // `divisors`: the results are the sum of the rows divided by each of them; none: there is one result, the rows'.
  EntropyBackward(torch::autograd::edge_list&& edges, const torch::Tensor& logits, const torch::Tensor& labels,
                  torch::Tensor shifts, std::vector<double> divisors)
      : LineNode(std::move(edges)),
        logits_(logits, /*is_output=*/false),
        labels_(labels, /*is_output=*/false),
        shifts_(std::move(shifts)),
        divisors_(std::move(divisors)) {}

  variable_list apply(variable_list&& gradients) override {
    const auto is_defined = [](const torch::Tensor& gradient) { return gradient.defined(); };
    if (std::none_of(gradients.begin(), gradients.end(), is_defined)) return variable_list(1);
    const torch::Tensor logits = logits_.unpack();
    const torch::Tensor labels = labels_.unpack();
    const auto is_odd = [&](const torch::Tensor& gradient) {  // its bytes are not its values
      return gradient.defined() && gradient.key_set() != logits.key_set();
    };
    if (at::GradMode::is_enabled() || std::any_of(gradients.begin(), gradients.end(), is_odd)) {
      return {by_operations(gradients, logits, labels)};
    }
    const torch::Tensor factors = divisors_.empty() ? gradients.front() : factor_of_all(gradients, logits);
    const int64_t step = divisors_.empty() ? factors.stride(0) : 0;
    torch::Tensor gradient = empty_plain(logits.sizes(), logits.scalar_type());
    each_rows(logits, labels, [&](int64_t row, const kernels::Labelled& rows) {
      kernels::entropy_gradient(element_at(gradient, row * rows.classes), element_at(factors, row * step), step,
                                element_at(shifts_, 2 * row), rows, logits.scalar_type());
    });
    return {gradient};
  }

  void release_variables() override {
    logits_.reset_data();
    labels_.reset_data();
    shifts_.reset();
  }
  std::string name() const override { return "EntropyBackward"; }

 private:
  torch::Tensor factor_of_all(const variable_list& gradients, const torch::Tensor& logits) const {
    double factor = 0.0;
    for (std::size_t i = 0; i < divisors_.size(); ++i) {
      if (gradients[i].defined()) factor += number_of(gradients[i]) / divisors_[i];
    }
    return scalar_of(factor, logits);
  }

  // Computes the same by operations that have gradients themselves.
  torch::Tensor by_operations(const variable_list& gradients, const torch::Tensor& logits,
                              const torch::Tensor& labels) const {
    const torch::Tensor each = at::softmax(logits, 1) - at::one_hot(labels, logits.size(1)).to(logits.scalar_type());
    if (divisors_.empty()) return each * gradients.front().unsqueeze(1);
    torch::Tensor factor;
    for (std::size_t i = 0; i < divisors_.size(); ++i) {
      if (!gradients[i].defined()) continue;
      const torch::Tensor own = gradients[i] / divisors_[i];
      factor = factor.defined() ? factor + own : own;
    }
    return each * factor;
  }

  torch::autograd::SavedVariable logits_, labels_;
  torch::Tensor shifts_;  // see kernels::entropy()
  std::vector<double> divisors_;
};

bool takes_rows(const torch::Tensor& logits, const torch::Tensor& labels) {
  return kernels::has_kernels(logits.scalar_type()) && labels.scalar_type() == torch::kLong && logits.dim() == 2 &&
         labels.dim() == 1 && logits.numel() > 0 && labels.size(0) == logits.size(0);
}

void require_classes_of(const torch::Tensor& labels, int64_t classes) {
  const int64_t* const each = labels.data_ptr<int64_t>();
  const bool known =
      std::all_of(each, each + labels.numel(), [&](int64_t label) { return label >= 0 && label < classes; });
  TORCH_CHECK_INDEX(known, "a label is out of range of ", classes, " classes");
}

// Returns the results of `make` of the rows' cross-entropies, with their place in autograd's graph.
template <typename Make>
variable_list entropies(const torch::Tensor& logits, const torch::Tensor& labels, std::vector<double> divisors,
                        const Make& make) {
  require_classes_of(labels, logits.size(1));
  variable_list results;
  torch::Tensor shifts;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const torch::Tensor losses = empty_plain({logits.size(0)}, logits.scalar_type());
    shifts = empty_plain({logits.size(0), 2}, logits.scalar_type());
    each_rows(logits, labels, [&](int64_t row, const kernels::Labelled& rows) {
      kernels::entropy(element_at(losses, row), element_at(shifts, 2 * row), rows, logits.scalar_type());
    });
    results = make(losses);
  }
  if (!torch::autograd::compute_requires_grad(logits)) return results;
  auto node = compat::make_grad_fn<EntropyBackward>(torch::autograd::collect_next_edges(logits), logits, labels,
                                                    std::move(shifts), std::move(divisors));
  for (torch::Tensor& result : results) torch::autograd::set_history(result, node);
  return results;
}

// The order does not depend on the number of threads.
template <typename T>
double sum_of_losses(const torch::Tensor& losses) {
  const T* const each = losses.data_ptr<T>();
  return std::accumulate(each, each + losses.numel(), 0.0);
}

}  // namespace

torch::Tensor entropy_of_rows(const torch::Tensor& logits, const torch::Tensor& labels) {
  if (!takes_rows(logits, labels)) return {};
  const PlainOperation operation(logits, labels);
  if (!operation.begins()) return {};
  return entropies(logits, labels, {}, [](const torch::Tensor& losses) { return variable_list{losses}; }).front();
}

EntropySums entropy_of_all_rows(const torch::Tensor& logits, const torch::Tensor& labels, double value_divisor,
                                double total_divisor) {
  if (!takes_rows(logits, labels)) return {};
  const PlainOperation operation(logits, labels);
  if (!operation.begins()) return {};
  const variable_list both =
      entropies(logits, labels, {value_divisor, total_divisor}, [&](const torch::Tensor& losses) -> variable_list {
        const double sum =
            losses.scalar_type() == torch::kFloat ? sum_of_losses<float>(losses) : sum_of_losses<double>(losses);
        return {scalar_of(sum / value_divisor, losses), scalar_of(sum / total_divisor, losses)};
      });
  return {.value = both[0], .total = both[1]};
}

}  // namespace cohort
