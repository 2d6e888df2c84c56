// Logits of which each replica has some classes ("vocabulary-parallel", Shoeybi et al., "Megatron-LM",
// arXiv:1909.08053): what a cross-entropy and an accuracy ask of them, with a few numbers of each row between the
// replicas instead of the classes.
#include <ATen/Functions.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/first_derivative.h"
#include "strategy/along_line.h"
#include "strategy/saved_communicator.h"
#include "wings/mesh/strategy/space/rules.h"

namespace cohort::space {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Each replica's sum of exponentials goes to all others, as its logarithm, so that nothing overflows. The gradient of a
// row's logarithm is the sum of the gradients of all its classes.
class LogSoftmax : public torch::autograd::Function<LogSoftmax> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& part, int64_t line, int64_t dim) {
    const Tensor own = at::logsumexp(part, {dim}, /*keepdim=*/true).unsqueeze(0);
    const Tensor all = at::logsumexp(at::cat(to_communicator(line).all_gather(own.contiguous())), {0});
    Tensor logs = part - all;
    context->saved_data["line"] = line;
    context->saved_data["dim"] = dim;
    context->save_for_backward({logs});
    return logs;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    require_first_derivative("[space] ", "a softmax over classes in parts");
    const Tensor logs = context->get_saved_variables()[0];
    const Tensor own = gradients[0].sum({context->saved_data["dim"].toInt()}, /*keepdim=*/true);
    const Tensor sum = reduced_copy(to_communicator(context->saved_data["line"]), own, ReduceOp::kSum);
    return {gradients[0] - at::exp(logs) * sum, {}, {}};
  }
};

// A number of half precision is computed with in single precision, as LibTorch's kernels do.
bool is_half(const Tensor& x) {
  return x.scalar_type() == torch::kHalf || x.scalar_type() == torch::kBFloat16;
}

Tensor log_softmax(const Tensor& part, const Layout& layout, int64_t dim) {
  const int64_t line = to_number(*layout.grid.line);
  if (!is_half(part)) return LogSoftmax::apply(part, line, dim);
  return LogSoftmax::apply(part.to(torch::kFloat), line, dim).to(part.scalar_type());
}

// A card refuses a target that is no class when it comes to it, as LibTorch's kernel does.
void require_classes_of(const Tensor& target, const Tensor& counts, int64_t classes) {
  const Tensor outside = target.lt(0).logical_or(target.ge(classes)).logical_and(counts).any();
  if (!target.is_cpu()) return at::_assert_async(outside.logical_not());
  TORCH_CHECK_INDEX(!outside.item<bool>(), "a target is out of bounds");
}

}  // namespace

bool has_classes_in_parts(const Layout& layout, int64_t dim) {
  return layout.is_cut(dim) && layout.grid.parts.size() == 1 &&
         layout.sizes[static_cast<std::size_t>(dim)] % layout.grid.parts[0] == 0;
}

void call_softmax_of_classes(DividedCall& call, int64_t dim) {
  const Tensor x = call.tensor(0);
  const c10::IValue dtype = call[call.find("dtype").value()];
  const Tensor part = dtype.isNone() ? part_of(x) : part_of(x).to(dtype.toScalarType());
  const Tensor logs = log_softmax(part, layout_of(x), dim);
  call.finish({make_divided(call.short_name() == "softmax" ? at::exp(logs) : logs, layout_of(x))});
}

// One of the replicas has the class of the target; the others add zeros, whatever they have there, which may be
// infinite.
void call_nll_of_classes(DividedCall& call) {
  const Tensor x = call.tensor(0), target = call.tensor(1), weight = call.tensor(2);
  const int64_t reduction = call[3].toInt(), ignored = call[4].toInt();
  const Range own = layout_of(x).own(1);
  const Tensor counts = target.ne(ignored);
  require_classes_of(target, counts, x.size(1));
  const Tensor here = target.ge(own.begin).logical_and(target.lt(own.end)).logical_and(counts);
  const Tensor index = (target - own.begin).clamp(0, own.size() - 1).unsqueeze(1);
  const Tensor& part = part_of(x);
  const Tensor picked = at::where(here, part.gather(1, index).squeeze(1), at::zeros({}, part.options()));
  Tensor each = -sum_over_line(picked, *layout_of(x).grid.line);
  Tensor weights = counts.to(each.scalar_type());
  if (weight.defined()) {
    weights = weight.detach().take(target.where(counts, at::zeros_like(target))) * weights;
    each = each * weights;
  }
  if (reduction == at::Reduction::Sum) each = each.sum();
  if (reduction == at::Reduction::Mean) each = each.sum() / weights.sum();
  call.finish({each});
}

// The first of the largest classes, as LibTorch's.
void call_argmax_of_classes(DividedCall& call, int64_t dim) {
  const Tensor x = call.tensor(0);
  const bool keeps = call[call.find("keepdim").value()].toBool();
  Communicator& line = *layout_of(x).grid.line;
  const Tensor part = part_of(x).detach();
  const auto of_all = [&](const Tensor& own) { return at::cat(line.all_gather(own.unsqueeze(0).contiguous())); };
  const Tensor values = of_all(part.amax({dim}, keeps));
  const Tensor classes = of_all(part.argmax(dim, keeps) + layout_of(x).own(dim).begin);
  call.finish({classes.gather(0, values.argmax(0, /*keepdim=*/true)).squeeze(0)});
}

}  // namespace cohort::space
