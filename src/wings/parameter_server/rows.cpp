// Rows of tables: gathered, and their gradients added up by row. All that travels between tasks lies on the CPU and
// goes by pointers.
#include "wings/parameter_server/rows.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/first_derivative.h"
#include "ops/kernels/kernels.h"

namespace cohort {

namespace {

int64_t row_bytes(const torch::Tensor& table) {
  const auto row = table.sizes().slice(1);
  return c10::multiply_integers(row.begin(), row.end()) * static_cast<int64_t>(table.element_size());
}

std::vector<int64_t> shape_of_rows(const torch::Tensor& table, int64_t count) {
  std::vector<int64_t> shape = table.sizes().vec();
  shape[0] = count;
  return shape;
}

struct NumberedRow {
  uint64_t index = 0;
  int64_t place = 0;
};

// Sorts by the index and keeps the order of equal ones (a radix sort, least significant digits first).
void sort_by_index(std::vector<NumberedRow>& list) {
  constexpr int kBits = 11;
  constexpr uint64_t kDigits = uint64_t{1} << kBits;
  uint64_t largest = 0;
  for (const NumberedRow& each : list) largest = std::max(largest, each.index);
  std::vector<NumberedRow> sorted(list.size());
  for (int shift = 0; shift < 64 && (largest >> shift) != 0; shift += kBits) {
    std::vector<std::size_t> begins(kDigits + 1);
    for (const NumberedRow& each : list) ++begins[((each.index >> shift) % kDigits) + 1];
    for (std::size_t digit = 1; digit < begins.size(); ++digit) begins[digit] += begins[digit - 1];
    for (const NumberedRow& each : list) sorted[begins[(each.index >> shift) % kDigits]++] = each;
    list.swap(sorted);
  }
}

class LookUp : public torch::autograd::Function<LookUp> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& table,
                               const torch::Tensor& indices) {
    context->saved_data["shape"] = table.sizes();
    context->save_for_backward({indices});
    return gather_rows(table, indices);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    require_first_derivative("[parameter server] ", "rows of a table");
    const torch::Tensor indices = context->get_saved_variables()[0];
    const torch::Tensor gradient = gradients[0].contiguous();
    torch::Tensor sum = at::zeros(context->saved_data["shape"].toIntVector(), gradient.options());
    const int64_t width = indices.numel() > 0 ? gradient.numel() / indices.numel() : 0;
    const auto* index = indices.data_ptr<int64_t>();
    const int64_t bytes = width * static_cast<int64_t>(gradient.element_size());
    const auto* from = static_cast<const std::byte*>(gradient.data_ptr());
    auto* const rows = static_cast<std::byte*>(sum.data_ptr());
    for (int64_t i = 0; i < indices.numel(); ++i, from += bytes) {
      kernels::add_into(rows + index[i] * bytes, from, width, gradient.scalar_type());
    }
    return {sum, torch::Tensor()};
  }
};

}  // namespace

UniqueRows unique_rows(const torch::Tensor& indices) {
  const int64_t count = indices.numel();
  const auto* index = indices.data_ptr<int64_t>();
  std::vector<NumberedRow> list(static_cast<std::size_t>(count));
  const int64_t least = count > 0 ? *std::min_element(index, index + count) : 0;
  for (int64_t i = 0; i < count; ++i) {
    list[static_cast<std::size_t>(i)] = {static_cast<uint64_t>(index[i]) - static_cast<uint64_t>(least), i};
  }
  sort_by_index(list);
  UniqueRows result{at::empty({count}, torch::kLong), at::empty({count}, torch::kLong)};
  auto* const unique = result.unique.data_ptr<int64_t>();
  auto* const inverse = result.inverse.data_ptr<int64_t>();
  int64_t different = 0;
  for (const NumberedRow& each : list) {
    const int64_t own = index[each.place];
    if (different == 0 || unique[different - 1] != own) unique[different++] = own;
    inverse[each.place] = different - 1;
  }
  result.unique = result.unique.narrow(0, 0, different);
  return result;
}

torch::Tensor gather_rows(const torch::Tensor& table, const torch::Tensor& indices) {
  const int64_t count = indices.numel();
  torch::Tensor rows = at::empty(shape_of_rows(table, count), table.options());
  const int64_t bytes = row_bytes(table);
  const auto* index = indices.data_ptr<int64_t>();
  const auto* const from = static_cast<const std::byte*>(table.data_ptr());
  auto* to = static_cast<std::byte*>(rows.data_ptr());
  for (int64_t i = 0; i < count; ++i, to += bytes) {
    if (i + kRowsAhead < count) prefetch(from + index[i + kRowsAhead] * bytes, bytes);
    std::memcpy(to, from + index[i] * bytes, static_cast<std::size_t>(bytes));
  }
  return rows;
}

torch::Tensor look_up_rows(const torch::Tensor& table, const torch::Tensor& indices) {
  const bool summed = table.scalar_type() == torch::kFloat || table.scalar_type() == torch::kDouble;
  return summed ? LookUp::apply(table, indices) : table.index_select(0, indices);
}

}  // namespace cohort
