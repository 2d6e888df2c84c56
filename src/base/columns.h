// The columns of an example, all treated alike: whatever batches, cuts, copies or saves examples goes over them by the
// functions here. A new field of Example takes a line in one of the two tables.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "cohort/example.h"

namespace cohort {

struct SingleColumn {
  const char* name;
  torch::Tensor Example::*column;
};
inline constexpr std::array kSingleColumns = {SingleColumn{"x", &Example::x}, SingleColumn{"y", &Example::y},
                                              SingleColumn{"weight", &Example::weight},
                                              SingleColumn{"mask", &Example::mask}};

struct NamedColumns {
  const char* name;
  NamedTensors Example::*columns;
};
inline constexpr std::array kNamedColumns = {
    NamedColumns{"inputs", &Example::inputs}, NamedColumns{"targets", &Example::targets},
    NamedColumns{"weights", &Example::weights}, NamedColumns{"masks", &Example::masks}};

// Calls fn(tensor) for every column, undefined ones too: the single ones, the named ones, then those of "more".
template <typename AnyExample, typename Fn>
void for_each_column(AnyExample& example, const Fn& fn) {
  for (const SingleColumn& each : kSingleColumns) fn(example.*each.column);
  for (const NamedColumns& group : kNamedColumns) {
    for (auto& [name, column] : example.*group.columns) fn(column);
  }
  for (auto& column : example.more) fn(column);
}

// Returns the example with fn(column) in place of each column that is defined.
template <typename Fn>
Example map_columns(const Example& example, const Fn& fn) {
  Example result;
  const auto each = [&](const torch::Tensor& column) { return column.defined() ? fn(column) : column; };
  for (const SingleColumn& single : kSingleColumns) result.*single.column = each(example.*single.column);
  for (const NamedColumns& group : kNamedColumns) {
    for (const auto& [name, column] : example.*group.columns) {
      (result.*group.columns).emplace_back(name, each(column));
    }
  }
  for (const torch::Tensor& column : example.more) result.more.push_back(each(column));
  return result;
}

// Returns all columns in the order of for_each_column().
std::vector<torch::Tensor> columns_of(const Example& example);

// Returns an example with the names of "like" and these columns, in the order of columns_of(); those beyond the named
// ones become "more".
Example with_columns(const Example& like, std::vector<torch::Tensor> columns);

// Returns whether the two have the same named columns in the same order.
bool same_names(const Example& a, const Example& b);

// Lists the columns that are defined, such as: x, y, inputs "image".
std::string list_columns(const Example& example);

// Returns one batch with the rows of all parts, which have the same columns, on one device. There is at least one part.
Example concatenate_rows(const std::vector<Example>& parts);

}  // namespace cohort
