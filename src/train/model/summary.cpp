#include <array>
#include <cstdio>
#include <ostream>

#include "base/fail.h"
#include "train/model/model_state.h"

namespace cohort {

namespace {

struct Count {
  int64_t values = 0;
  int64_t bytes = 0;

  void add(const torch::Tensor& tensor) {
    values += tensor.numel();
    bytes += tensor.numel() * static_cast<int64_t>(tensor.element_size());
  }
  std::string text() const;
};

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

std::string Count::text() const {
  return with_commas(values) + " (" + size_text(bytes) + ")";
}

std::string shape_text(const std::optional<Shape>& shape) {
  if (!shape) return "?";
  std::string text = "(None";
  for (const int64_t size : *shape) text += ", " + (size < 0 ? std::string("None") : std::to_string(size));
  return text + ")";
}

using Row = std::array<std::string, 3>;

void print_table(std::ostream& output, const std::vector<Row>& rows) {
  std::array<std::size_t, 3> widths{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  const std::size_t whole = widths[0] + widths[1] + widths[2] + 8;
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

}  // namespace

void Model::summary(std::ostream& output) const {
  state()->require_built("summary");
  Count total, trainable, fixed;
  std::vector<Row> rows = {{"Layer (type)", "Output Shape", "Param #"}};
  for (std::size_t i = 0; i < state()->entries().size(); ++i) {
    const auto& entry = state()->entries()[i];
    Count own;
    for (const auto& [name, tensor] : state()->entry_parameters(i, 0)) {
      own.add(tensor);
      const bool learns = tensor.requires_grad() && entry.trainable;
      (learns || (entry.trainable && !entry.applied) ? trainable : fixed).add(tensor);
    }
    for (const auto& [name, tensor] : state()->entry_buffers(i, 0)) {
      own.add(tensor);
      fixed.add(tensor);
    }
    total.values += own.values;
    total.bytes += own.bytes;
    rows.push_back({entry.name + " (" + entry.type + ")", shape_text(entry.output), with_commas(own.values)});
  }
  output << "Model: \"" << name() << "\"\n";
  print_table(output, rows);
  output << "Total params: " << total.text() << '\n'
         << "Trainable params: " << trainable.text() << '\n'
         << "Non-trainable params: " << fixed.text() << std::endl;
}

}  // namespace cohort
