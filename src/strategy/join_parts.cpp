// What a function has returned for the microbatches of a share, put together.
#include "cohort/strategy.h"

#include <ATen/Functions.h>
#include <c10/util/Type.h>

#include "base/fail.h"
#include "cohort/strategy.h"
#include "strategy/result_carrier.h"

namespace cohort {

namespace {

ResultCarrier*& carrier() {
  thread_local ResultCarrier* current = nullptr;
  return current;
}

}  // namespace

ResultCarrier::ResultCarrier(std::vector<torch::Tensor> tensors, bool has_all)
    : tensors_(std::move(tensors)), has_all_(has_all) {
  carrier() = this;
}

ResultCarrier::~ResultCarrier() {
  carrier() = nullptr;
}

ResultCarrier* ResultCarrier::current() {
  return carrier();
}

torch::Tensor ResultCarrier::next(const std::function<torch::Tensor()>& join) {
  if (!has_all_) return tensors_.emplace_back(join());
  if (taken_ < tensors_.size()) return tensors_[taken_++];
  fail<FailedPrecondition>("[pipeline] the function given to run() returned more tensors than in the process of the ",
                           "last stage; all processes run the same program");
}

namespace detail {

namespace {

torch::Tensor joined(const std::vector<torch::Tensor>& parts, const std::vector<SharePart>& shares) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> values;
  for (const torch::Tensor& part : parts) values.push_back(part.defined() ? part.detach() : part);
  if (!values.front().defined()) {
    for (const torch::Tensor& value : values) {
      if (value.defined()) fail_to_match();
    }
    return {};
  }
  const bool scalar = values.front().dim() == 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const torch::Tensor& value = values[i];
    if (value.defined() &&
        (scalar ? value.dim() == 0 : value.dim() > 0 && value.size(0) == shares[i].end - shares[i].begin)) {
      continue;
    }
    fail<InvalidArgument>("[pipeline] the function given to run() returned ",
                          value.defined() ? c10::str("a tensor of shape ", value.sizes()) : std::string("no tensor"),
                          " for microbatch ", i, " of ", shares[i].end - shares[i].begin,
                          " examples, wanted a scalar, which is added up, or a row for each example");
  }
  if (!scalar) return at::cat(values, 0);
  torch::Tensor sum = values.front();
  for (std::size_t i = 1; i < values.size(); ++i) sum = sum + values[i];
  return sum;
}

}  // namespace

torch::Tensor join_tensors(const std::vector<torch::Tensor>& parts, const std::vector<SharePart>& shares) {
  ResultCarrier* const results = ResultCarrier::current();
  const auto join = [&] { return parts.size() == 1 ? parts.front() : joined(parts, shares); };
  return results == nullptr ? join() : results->next(join);
}

bool shares_results() {
  return ResultCarrier::current() != nullptr;
}

void fail_to_join(const char* type) {
  fail<InvalidArgument>("[pipeline] what the function given to run() returns for several microbatches cannot be put ",
                        "together (", c10::demangle(type),
                        "): return tensors, numbers, or vectors, pairs or tuples of them");
}

void fail_to_match() {
  fail<InvalidArgument>("[pipeline] the function given to run() returned lists of different lengths or names for the ",
                        "microbatches of a share");
}

}  // namespace detail

}  // namespace cohort
