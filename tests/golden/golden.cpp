#include "tests/golden/golden.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <stdexcept>

#include "tests/support/files.h"

namespace cohort::testing {

namespace {

using nlohmann::json;

// Python writes NaN and Infinity as bare words, which are not JSON: outside of strings they become strings.
std::string with_quoted_words(const std::string& text) {
  std::string quoted;
  bool inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (inside && c == '\\') {
      quoted += text.substr(i++, 2);
      continue;
    }
    if (c == '"') inside = !inside;
    std::string_view word;
    for (const std::string_view known : {"NaN", "Infinity", "-Infinity"}) {
      if (!inside && text.compare(i, known.size(), known) == 0) word = known;
    }
    if (word.empty()) {
      quoted += c;
      continue;
    }
    quoted += '"' + std::string(word) + '"';
    i += word.size() - 1;
  }
  return quoted;
}

void flatten(const json& numbers, std::vector<double>& flat) {
  if (!numbers.is_array()) return flat.push_back(golden_number(numbers));
  for (const json& part : numbers) flatten(part, flat);
}

// Returns what is wrong with a difference whose case agrees or does not; empty for nothing.
std::string fault_of(const GoldenDifference& difference, bool agrees) {
  static const std::string document = read_file("docs/migrating-numbers.md");
  if (agrees) return "agrees now: take it out of the differences and of docs/migrating-numbers.md";
  if (document.find(difference.said) != std::string::npos) return "";
  return "docs/migrating-numbers.md does not have \"" + difference.said + "\"";
}

}  // namespace

std::filesystem::path golden_folder() {
  const char* folder = std::getenv("COHORT_GOLDEN");
  return folder ? folder : "../shared/golden";
}

double golden_number(const json& number) {
  if (number.is_boolean()) return number.get<bool>() ? 1.0 : 0.0;
  if (number.is_number()) return number.get<double>();
  const std::string word = number.is_string() ? number.get<std::string>() : "";
  if (word == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (word == "Infinity") return std::numeric_limits<double>::infinity();
  if (word == "-Infinity") return -std::numeric_limits<double>::infinity();
  throw std::invalid_argument(number.dump() + " is no number");
}

torch::Tensor golden_tensor(const json& numbers, torch::ScalarType dtype) {
  std::vector<int64_t> shape;
  for (const json* level = &numbers; level->is_array(); level = &level->front()) {
    shape.push_back(static_cast<int64_t>(level->size()));
    if (level->empty()) break;
  }
  std::vector<double> flat;
  flatten(numbers, flat);
  torch::Tensor tensor = at::empty(shape, torch::kDouble);
  if (tensor.numel() != static_cast<int64_t>(flat.size())) {
    throw std::invalid_argument("nested lists of uneven lengths are no tensor");
  }
  std::copy(flat.begin(), flat.end(), tensor.data_ptr<double>());
  return tensor.to(dtype);
}

std::string difference(const std::string& what, const torch::Tensor& actual, const torch::Tensor& wanted,
                       Tolerance tolerance) {
  if (actual.sizes() != wanted.sizes()) {
    return c10::str(what, " has the shape ", actual.sizes(), ", wanted ", wanted.sizes());
  }
  const torch::Tensor ours = actual.detach().to(torch::kCPU, torch::kDouble).contiguous().view({-1});
  const torch::Tensor theirs = wanted.detach().to(torch::kCPU, torch::kDouble).contiguous().view({-1});
  for (int64_t i = 0; i < ours.numel(); ++i) {
    const std::string found =
        difference(c10::str(what, "[", i, "]"), ours[i].item<double>(), theirs[i].item<double>(), tolerance);
    if (!found.empty()) return found;
  }
  return "";
}

std::string difference(const std::string& what, double actual, double wanted, Tolerance tolerance) {
  if (actual == wanted || (std::isnan(actual) && std::isnan(wanted))) return "";
  if (std::abs(actual - wanted) <= tolerance.absolute + tolerance.relative * std::abs(wanted)) return "";
  std::ostringstream text;
  text.precision(12);
  text << what << " is " << actual << ", wanted " << wanted;
  return text.str();
}

void check_golden(const std::string& file, const GoldenCheck& check, const std::vector<GoldenDifference>& differences) {
  check_golden(golden_folder(), file, check, differences);
}

void check_golden(const std::filesystem::path& folder, const std::string& file, const GoldenCheck& check,
                  const std::vector<GoldenDifference>& differences) {
  if (!std::filesystem::is_directory(folder)) {
    GTEST_SKIP() << "golden facts: there is no folder " << folder << " (COHORT_GOLDEN names another one)";
  }
  const std::filesystem::path path = folder / file;
  if (!std::filesystem::exists(path)) {
    ADD_FAILURE() << "golden facts: " << folder << " has no " << file;
    return;
  }
  const json content = json::parse(with_quoted_words(read_file(path)));
  const json& cases = content.at("cases");
  EXPECT_FALSE(cases.empty()) << file << " has no cases";
  int failed = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    std::string found;
    try {
      found = check(cases[i]);
    } catch (const std::exception& error) {
      found = std::string("an error: ") + error.what();
    }
    const auto differs = std::find_if(differences.begin(), differences.end(),
                                      [&](const GoldenDifference& each) { return each.index == i; });
    if (differs != differences.end()) found = fault_of(*differs, found.empty());
    if (found.empty()) continue;
    ++failed;
    ADD_FAILURE() << file << ", case " << i << ": " << found;
  }
  std::cout << "golden facts: " << file << ": " << cases.size() - failed << " of " << cases.size() << " cases agree"
            << (differences.empty() ? "" : c10::str(", ", differences.size(), " of them in that they differ"))
            << std::endl;
}

}  // namespace cohort::testing
