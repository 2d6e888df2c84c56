// The conjugate pairs of tensor parallelism: what is a sum, or a concatenation, in one direction is the identity, or a
// part, in the other.
#include <ATen/Functions.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/access.h"
#include "base/fail.h"
#include "base/first_derivative.h"
#include "cohort/parallel/axes.h"
#include "cohort/replica.h"
#include "strategy/along_line.h"
#include "strategy/divided.h"
#include "strategy/saved_communicator.h"

namespace cohort {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A replica's end of its line along an axis.
Communicator& line_of(std::string_view axis, std::string_view who) {
  const Replica* replica = Replica::current();
  if (replica == nullptr) {
    fail<FailedPrecondition>("[mesh] ", who, " along \"", axis, "\": called outside run(); the replicas of a line, ",
                             "which have a part of the model each, compute together");
  }
  return replica->group(axis);
}

torch::Tensor all_of(Communicator& line, const torch::Tensor& x, int64_t dim) {
  return at::cat(line.all_gather(x.detach().contiguous()), dim);
}

torch::Tensor own_of(Communicator& line, const torch::Tensor& x, int64_t dim) {
  const int64_t size = x.size(dim) / line.size();
  return x.narrow(dim, line.rank() * size, size).contiguous();
}

class Enter : public torch::autograd::Function<Enter> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x, int64_t line) {
    context->saved_data["line"] = line;
    return x.view_as(x);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    require_first_derivative("[mesh] ", "enter_axis()");
    return {reduced_copy(to_communicator(context->saved_data["line"]), gradients[0], ReduceOp::kSum), {}};
  }
};

class Sum : public torch::autograd::Function<Sum> {
 public:
  static torch::Tensor forward(AutogradContext* /*context*/, const torch::Tensor& x, int64_t line) {
    return reduced_copy(to_communicator(line), x, ReduceOp::kSum);
  }
  static variable_list backward(AutogradContext* /*context*/, const variable_list& gradients) {
    require_first_derivative("[mesh] ", "sum_along()");
    return {gradients[0], {}};
  }
};

// The parts of all replicas from each one's own, or the own part of what all have.
template <bool kGathers>
class Along : public torch::autograd::Function<Along<kGathers>> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x, int64_t line, int64_t dim) {
    context->saved_data["line"] = line;
    context->saved_data["dim"] = dim;
    return kGathers ? all_of(to_communicator(line), x, dim) : own_of(to_communicator(line), x, dim);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    require_first_derivative("[mesh] ", kGathers ? "gather_along()" : "part_along()");
    Communicator& line = to_communicator(context->saved_data["line"]);
    const int64_t dim = context->saved_data["dim"].toInt();
    return {kGathers ? own_of(line, gradients[0], dim) : all_of(line, gradients[0], dim), {}, {}};
  }
};
using Gather = Along<true>;
using Part = Along<false>;

int64_t dimension_of(const torch::Tensor& x, int64_t dim, std::string_view who) {
  if (dim < -x.dim() || dim >= x.dim()) {
    fail<InvalidArgument>("[mesh] ", who, ": dimension ", dim, " of a tensor of rank ", x.dim());
  }
  return dim < 0 ? dim + x.dim() : dim;
}

}  // namespace

torch::Tensor enter_line(const torch::Tensor& x, Communicator& line) {
  return line.size() == 1 ? x : Enter::apply(x, to_number(line));
}

torch::Tensor sum_over_line(const torch::Tensor& x, Communicator& line) {
  return line.size() == 1 ? x : Sum::apply(x, to_number(line));
}

torch::Tensor enter_axis(const torch::Tensor& x, std::string_view axis) {
  Communicator& line = line_of(axis, "enter_axis");
  const DividedTensor* const divided = DividedTensor::of(x);
  return divided != nullptr && &divided->line() == &line ? divided->entered(x) : enter_line(x, line);
}

torch::Tensor sum_along(const torch::Tensor& x, std::string_view axis) {
  return sum_over_line(x, line_of(axis, "sum_along"));
}

torch::Tensor gather_along(const torch::Tensor& x, std::string_view axis, int64_t dim) {
  Communicator& line = line_of(axis, "gather_along");
  const int64_t along = dimension_of(x, dim, "gather_along");
  return line.size() == 1 ? x : Gather::apply(x, to_number(line), along);
}

torch::Tensor parts_along(const torch::Tensor& x, std::string_view axis, int64_t dim) {
  Communicator& line = line_of(axis, "parts_along");
  const int64_t along = dimension_of(x, dim, "parts_along");
  return line.size() == 1 ? x : joined_along(x, along, line);
}

torch::Tensor part_along(const torch::Tensor& x, std::string_view axis, int64_t dim) {
  Communicator& line = line_of(axis, "part_along");
  const int64_t along = dimension_of(x, dim, "part_along");
  if (x.size(along) % line.size() != 0) {
    fail<InvalidArgument>("[mesh] part_along: dimension ", along, " has ", x.size(along), " elements, which the ",
                          line.size(), " replicas along \"", axis, "\" do not divide");
  }
  return line.size() == 1 ? x : Part::apply(x, to_number(line), along);
}

}  // namespace cohort
