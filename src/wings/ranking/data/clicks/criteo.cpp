// Criteo's format: a line an example, with tabs between a label, 13 whole numbers and 26 categories as hexadecimal
// numbers; a field may be empty.
#include <ATen/Functions.h>

#include <charconv>
#include <fstream>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "base/fail.h"
#include "data/readers/folder_entries.h"
#include "data/readers/held_out.h"
#include "wings/ranking/data/clicks/clicks.h"

namespace cohort::datasets {

namespace {

constexpr const char* kFields = "40 fields with tabs between them";
static_assert(1 + kDenseFeatures + kCategories == 40);
constexpr const char* kLabels = "a label of 0 or 1";
constexpr std::size_t kShown = 40;  // characters of a field that a message shows

// Reads one line, field by field.
class ClickLine {
 public:
  ClickLine(const std::filesystem::path& file, int64_t number, std::string_view line)
      : file_(file), number_(number), rest_(line) {}

  // Returns the next field as a number; nothing if it is empty.
  template <typename Number>
  std::optional<Number> next(const char* wanted, int base) {
    if (ended_) damaged(c10::str(field_, " fields"), kFields);
    const std::size_t tab = rest_.find('\t');
    const std::string_view text = rest_.substr(0, tab);
    ended_ = tab == std::string_view::npos;
    if (!ended_) rest_.remove_prefix(tab + 1);
    ++field_;
    if (text.empty()) return std::nullopt;
    Number value = 0;
    const auto [stopped, error] = std::from_chars(text.begin(), text.end(), value, base);
    if (error == std::errc() && stopped == text.end()) return value;
    damaged(c10::str("\"", text.substr(0, kShown), "\" in field ", field_), wanted);
  }
  void require_end() const {
    if (!ended_) damaged("more fields", kFields);
  }
  [[noreturn]] void damaged(const std::string& what, const char* wanted) const {
    fail<DataLoss>("[data] ", file_.string(), ", line ", number_, " has ", what, ", wanted ", wanted);
  }

 private:
  const std::filesystem::path& file_;
  int64_t number_;
  std::string_view rest_;
  int64_t field_ = 0;  // the number of those that were read
  bool ended_ = false;
};

struct ClickColumns {
  std::vector<float> labels;
  std::vector<float> dense;
  std::vector<int64_t> categories;

  void add(ClickLine line) {
    const auto label = line.next<int64_t>(kLabels, 10);
    if (!label || *label < 0 || *label > 1) line.damaged("another label, or none", kLabels);
    labels.push_back(static_cast<float>(*label));
    for (int64_t i = 0; i < kDenseFeatures; ++i) {
      dense.push_back(static_cast<float>(line.next<int64_t>("a whole number", 10).value_or(0)));
    }
    for (int64_t i = 0; i < kCategories; ++i) {
      const auto value = line.next<uint32_t>("a hexadecimal number of at most 8 digits", 16);
      categories.push_back(value ? static_cast<int64_t>(*value) : kNoCategory);
    }
    line.require_end();
  }
};

void read_file(const std::filesystem::path& file, ClickColumns& columns) {
  std::ifstream in(file);
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    columns.add(ClickLine(file, number, line));
  }
  if (!in.eof() || in.bad()) fail<Unavailable>("[data] ", file.string(), ": cannot be read");
}

// Returns a tensor whose memory is that of the values.
template <typename T>
torch::Tensor taken_over(std::vector<T> values, at::IntArrayRef shape) {
  const auto kept = std::make_shared<std::vector<T>>(std::move(values));
  return at::from_blob(
      kept->data(), shape, [kept](void*) {}, at::TensorOptions(c10::CppTypeToScalarType<T>::value));
}

std::vector<std::filesystem::path> files_at(const std::filesystem::path& place) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(place, ignored)) return {place};
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path& entry : sorted_entries(place)) {
    const bool hidden = entry.filename().string().starts_with('.');
    if (!hidden && std::filesystem::is_regular_file(entry, ignored)) files.push_back(entry);
  }
  return files;
}

}  // namespace

TrainTest criteo(const std::filesystem::path& place, const CriteoOptions& options) {
  require_held_out("criteo", options.held_out);
  std::error_code ignored;
  if (!std::filesystem::exists(place, ignored)) {
    fail<NotFound>("[data] ", place.string(), ": there is no such file or folder of clicks");
  }
  ClickColumns columns;
  for (const std::filesystem::path& file : files_at(place)) read_file(file, columns);
  const auto count = static_cast<int64_t>(columns.labels.size());
  if (count == 0) fail<NotFound>("[data] ", place.string(), ": has no clicks");
  const Clicks all{.dense = taken_over(std::move(columns.dense), {count, kDenseFeatures}),
                   .categories = taken_over(std::move(columns.categories), {count, kCategories}),
                   .labels = taken_over(std::move(columns.labels), {count})};
  if (options.held_out == 0.0) return {.train = examples_of(all), .test = examples_of(all.first(0))};
  const auto [train, test] = hold_out(count, options.held_out, options.seed);
  return {.train = examples_of(all.rows(train)), .test = examples_of(all.rows(test))};
}

}  // namespace cohort::datasets
