#include <algorithm>
#include <array>
#include <cstdio>
#include <ostream>
#include <set>
#include <vector>

#include "base/fail.h"
#include "device/identity.h"
#include "train/model/model_state.h"

namespace cohort {

namespace {

std::string with_commas(int64_t number) {
  const std::string digits = std::to_string(number);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string size_text(int64_t bytes) {
  constexpr std::array kUnits = {"B", "KB", "MB", "GB", "TB"};
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; size >= 1024.0 && unit + 1 < kUnits.size(); ++unit) size /= 1024.0;
  char text[32];
  std::snprintf(text, sizeof text, "%.2f %s", size, kUnits[unit]);
  return text;
}

struct Count {
  int64_t values = 0;
  int64_t bytes = 0;

  void add(const torch::Tensor& tensor) {
    values += tensor.numel();
    bytes += tensor.numel() * static_cast<int64_t>(tensor.element_size());
  }
  std::string text() const { return with_commas(values) + " (" + size_text(bytes) + ")"; }
};

std::string shape_text(const std::optional<Shape>& shape) {
  if (!shape) return "?";
  std::string text = "(None";
  for (const int64_t size : *shape) text += ", " + (size < 0 ? std::string("None") : std::to_string(size));
  return text + ")";
}

using Row = std::vector<std::string>;

void print_table(std::ostream& output, const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::size_t whole = 3 * widths.size() - 1;
  for (const std::size_t width : widths) whole += width;
  output << std::string(whole, '_') << '\n';
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::string line = " ";
    for (std::size_t i = 0; i < rows[r].size(); ++i) {
      line += rows[r][i];
      if (i + 1 < rows[r].size()) line.append(widths[i] - rows[r][i].size() + 3, ' ');
    }
    output << line << '\n';
    if (r == 0) output << std::string(whole, '=') << '\n';
  }
  output << std::string(whole, '=') << '\n';
}

// Returns the parameters that will learn after the next compile(): those that no frozen layer has.
std::set<const void*> learning_parameters(const ModelState& state) {
  std::set<const void*> learning;
  std::set<const void*> frozen;
  for (std::size_t i = 0; i < state.entries().size(); ++i) {
    const auto& entry = state.entries()[i];
    for (const auto& [name, tensor] : state.entry_parameters(i, 0)) {
      if (!entry.trainable) frozen.insert(tensor_id(tensor));
      if (tensor.requires_grad() || !entry.applied) learning.insert(tensor_id(tensor));
    }
  }
  std::erase_if(learning, [&](const void* each) { return frozen.contains(each); });
  return learning;
}

}  // namespace

// A layer's row has all its parameters; in the totals one that several layers have (tied weights) counts once.
void Model::summary(std::ostream& output) const {
  state_->require_built("summary");
  const std::set<const void*> learning = learning_parameters(*state_);
  std::set<const void*> counted;
  Count total, trainable, fixed;
  const auto& entries = state_->entries();
  const bool graph = std::any_of(entries.begin(), entries.end(), [](const auto& each) { return !each.inputs.empty(); });
  std::vector<Row> rows = {{"Layer (type)", "Output Shape", "Param #"}};
  if (graph) rows.front().push_back("Connected to");
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto& entry = entries[i];
    const ModelLayer layer(state_, i);
    for (const auto& [name, tensor] : layer.weights()) {
      if (!counted.insert(tensor_id(tensor)).second) continue;
      total.add(tensor);
      (learning.contains(tensor_id(tensor)) ? trainable : fixed).add(tensor);
    }
    const std::string own = with_commas(layer.count_params());
    rows.push_back({entry.name + " (" + entry.type + ")", shape_text(entry.output), own});
    if (graph) rows.back().push_back(entry.inputs);
  }
  output << "Model: \"" << name() << "\"\n";
  print_table(output, rows);
  output << "Total params: " << total.text() << '\n'
         << "Trainable params: " << trainable.text() << '\n'
         << "Non-trainable params: " << fixed.text() << std::endl;
}

}  // namespace cohort
