#include "cohort/example.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <iterator>

#include "base/columns.h"
#include "base/fail.h"

namespace cohort {

const torch::Tensor& Example::input() const {
  return x.defined() || inputs.empty() ? x : inputs.front().second;
}

int64_t Example::size() const {
  const torch::Tensor& first = input();
  if (!first.defined() || first.dim() == 0) {
    fail<InvalidArgument>("[data] a batch needs an x or named inputs with a batch dimension, got ",
                          first.defined() ? std::string("a scalar") : std::string("none"),
                          "; call batch() on the dataset");
  }
  return first.size(0);
}

// A copy to the host is complete when this returns. A copy to a device may go on: LibTorch keeps pinned memory until it
// is done, and has read other memory by then.
Example Example::to(torch::Device device) const {
  return map_columns(*this,
                     [&](const torch::Tensor& column) { return column.to(device, /*non_blocking=*/!device.is_cpu()); });
}

Example Example::rows(int64_t begin, int64_t end) const {
  return map_columns(*this, [&](const torch::Tensor& column) { return column.slice(0, begin, end); });
}

std::vector<torch::Tensor> columns_of(const Example& example) {
  std::vector<torch::Tensor> columns;
  columns.reserve(kSingleColumns.size() + example.more.size());
  for_each_column(example, [&](const torch::Tensor& column) { columns.push_back(column); });
  return columns;
}

Example with_columns(const Example& like, std::vector<torch::Tensor> columns) {
  Example example = like;
  example.more.clear();
  auto next = columns.begin();
  for_each_column(example, [&](torch::Tensor& column) { column = std::move(*next++); });
  example.more.assign(std::make_move_iterator(next), std::make_move_iterator(columns.end()));
  return example;
}

bool same_names(const Example& a, const Example& b) {
  return std::all_of(kNamedColumns.begin(), kNamedColumns.end(), [&](const NamedColumns& group) {
    const NamedTensors& left = a.*group.columns;
    const NamedTensors& right = b.*group.columns;
    return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                      [](const auto& one, const auto& other) { return one.first == other.first; });
  });
}

std::string list_columns(const Example& example) {
  std::string list;
  const auto add = [&](const std::string& name) { list += (list.empty() ? "" : ", ") + name; };
  for (const SingleColumn& each : kSingleColumns) {
    if ((example.*each.column).defined()) add(each.name);
  }
  for (const NamedColumns& group : kNamedColumns) {
    for (const auto& [name, column] : example.*group.columns) add(std::string(group.name) + " \"" + name + "\"");
  }
  if (!example.more.empty()) add(std::to_string(example.more.size()) + " more");
  return list.empty() ? "nothing" : list;
}

Example concatenate_rows(const std::vector<Example>& parts) {
  if (parts.size() == 1) return parts.front();
  std::vector<std::vector<torch::Tensor>> columns;
  for (const Example& part : parts) columns.push_back(columns_of(part));
  std::vector<torch::Tensor> joined;
  for (std::size_t i = 0; i < columns.front().size(); ++i) {
    std::vector<torch::Tensor> pieces;
    for (const auto& part : columns) pieces.push_back(part.at(i));
    joined.push_back(pieces.front().defined() ? at::cat(pieces, 0) : torch::Tensor());
  }
  return with_columns(parts.front(), std::move(joined));
}

}  // namespace cohort
