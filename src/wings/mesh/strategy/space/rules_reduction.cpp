// Reductions. Over dimensions that are whole each part is reduced by itself; over all that are cut the parts' sums are
// added up, and every replica has the whole result.
#include <ATen/Functions.h>

#include <algorithm>
#include <optional>

#include "strategy/along_line.h"
#include "wings/mesh/strategy/space/rules.h"

namespace cohort::space {

namespace {

enum class Over { kWhole, kCut, kSome };

std::vector<int64_t> dims_of(DividedCall& call, int64_t rank) {
  std::vector<int64_t> dims;
  const std::optional<std::size_t> at = call.find("dim");
  if (at && call[*at].isInt()) dims.push_back(call[*at].toInt());
  if (at && call[*at].isIntList()) dims = call[*at].toIntVector();
  for (int64_t& dim : dims) dim = wrapped(dim, rank);
  if (!dims.empty()) return dims;
  for (int64_t dim = 0; dim < rank; ++dim) dims.push_back(dim);
  return dims;
}

Over what_of(const Layout& layout, const std::vector<int64_t>& dims) {
  const std::vector<int64_t> cuts = layout.cut_dims();
  const auto reduced = std::count_if(
      cuts.begin(), cuts.end(), [&](int64_t cut) { return std::find(dims.begin(), dims.end(), cut) != dims.end(); });
  if (reduced == 0) return Over::kWhole;
  return reduced == static_cast<std::ptrdiff_t>(cuts.size()) ? Over::kCut : Over::kSome;
}

bool keeps_dims(DividedCall& call) {
  const std::optional<std::size_t> keepdim = call.find("keepdim");
  return keepdim && call[*keepdim].toBool();
}

// Reduces each part along dimensions that are whole.
void call_along(DividedCall& call, const std::vector<int64_t>& dims) {
  const torch::Tensor x = call.tensor(0);
  Layout layout = layout_of(x);
  std::vector<int64_t> order = dims;
  std::sort(order.rbegin(), order.rend());
  const bool keeps = keeps_dims(call);
  for (const int64_t dim : order) {
    layout.sizes[static_cast<std::size_t>(dim)] = 1;
    if (keeps) continue;
    layout.sizes.erase(layout.sizes.begin() + dim);
    layout.axes.erase(layout.axes.begin() + dim);
  }
  call[0] = part_of(x);
  call.forward();
  call.divide_results(layout);
}

void call_sum(DividedCall& call) {
  const torch::Tensor x = call.tensor(0);
  const Layout layout = layout_of(x);
  const std::vector<int64_t> dims = dims_of(call, x.dim());
  const Over over = what_of(layout, dims);
  if (over == Over::kWhole) return call_along(call, dims);
  if (over == Over::kSome) return call_whole(call);
  const std::optional<std::size_t> dtype = call.find("dtype");
  std::optional<torch::ScalarType> type;
  if (dtype && !call[*dtype].isNone()) type = call[*dtype].toScalarType();
  const bool keeps = keeps_dims(call);
  const bool is_mean = call.short_name() == "mean";
  const torch::Tensor& part = part_of(x);
  torch::Tensor sum = at::sum(part, dims, keeps, type ? c10::optional<torch::ScalarType>(*type) : c10::nullopt);
  int64_t count = 1;
  for (const int64_t dim : dims) count *= x.size(dim);
  if (is_mean) sum = sum / static_cast<double>(count);
  call.finish({sum_over_line(sum, *layout.grid.line)});
}

// Anything else that reduces: over dimensions that are whole, or with all elements.
void call_other(DividedCall& call) {
  const torch::Tensor x = call.tensor(0);
  const std::vector<int64_t> dims = dims_of(call, x.dim());
  if (what_of(layout_of(x), dims) == Over::kWhole) return call_along(call, dims);
  call_whole(call);
}

// Operations along a dimension that keep it.
void call_along_one(DividedCall& call) {
  const torch::Tensor x = call.tensor(0);
  const int64_t dim = wrapped(call[call.find("dim").value()].toInt(), x.dim());
  const bool softens = call.short_name() != "cumsum";
  if (softens && has_classes_in_parts(layout_of(x), dim)) return call_softmax_of_classes(call, dim);
  if (layout_of(x).is_cut(dim)) return call_whole(call);
  const Layout layout = layout_of(x);
  call[0] = part_of(x);
  call.forward();
  call.divide_results(layout);
}

void call_argmax(DividedCall& call) {
  const torch::Tensor x = call.tensor(0);
  const std::vector<int64_t> dims = dims_of(call, x.dim());
  if (dims.size() == 1 && has_classes_in_parts(layout_of(x), dims[0])) return call_argmax_of_classes(call, dims[0]);
  call_other(call);
}

void call_adaptive_average(DividedCall& call) {
  const torch::Tensor x = call.tensor(0);
  const std::vector<int64_t> size = call[1].toIntVector();
  const std::vector<int64_t> cuts = layout_of(x).cut_dims();
  const bool global = std::all_of(size.begin(), size.end(), [](int64_t each) { return each == 1; });
  if (!global || cuts.front() < x.dim() - 2) return call_whole(call);
  call.finish({x.mean({-2, -1}, /*keepdim=*/true)});
}

}  // namespace

void add_reduction_rules(Rules& rules) {
  for (const char* name : {"aten::sum", "aten::sum.dim_IntList", "aten::mean", "aten::mean.dim"}) {
    rules[name] = call_sum;
  }
  for (const char* name : {"aten::amax", "aten::amin", "aten::argmin", "aten::max", "aten::max.dim", "aten::min",
                           "aten::min.dim", "aten::logsumexp", "aten::prod.dim_int", "aten::norm.ScalarOpt_dim",
                           "aten::var.correction", "aten::std.correction", "aten::any", "aten::all"}) {
    rules[name] = call_other;
  }
  for (const char* name : {"aten::softmax.int", "aten::log_softmax.int", "aten::cumsum"}) rules[name] = call_along_one;
  rules["aten::argmax"] = call_argmax;
  rules["adaptive_avg_pool2d"] = call_adaptive_average;
}

}  // namespace cohort::space
