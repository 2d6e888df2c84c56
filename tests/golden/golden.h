// Golden facts: numbers that TensorFlow itself gave. They lie in the folder that COHORT_GOLDEN names, by default beside
// the repository. A file is {"about", "versions", "cases": [...]}; a test gives a function that checks one case.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace cohort::testing {

// Checks one case through the public interface and returns what differs, or an empty text. An exception of the check is
// a failure too.
using GoldenCheck = std::function<std::string(const nlohmann::json& golden)>;

// A case that differs from TensorFlow for good.
struct GoldenDifference {
  std::size_t index;  // the number of the case
  std::string said;   // the words of docs/migrating-numbers.md about it
};

// Checks every case of a file of the folder, reports each one that fails by its number, and prints how many there were.
// Skips the test where the folder is not there; a file that the folder lacks, or one without cases, is a failure.
// One of the differences is a failure if its case agrees, or the document does not have its words.
void check_golden(const std::string& file, const GoldenCheck& check,
                  const std::vector<GoldenDifference>& differences = {});
// The same with the files of another folder.
void check_golden(const std::filesystem::path& folder, const std::string& file, const GoldenCheck& check,
                  const std::vector<GoldenDifference>& differences = {});

// Returns the folder of the files, which may not be there.
std::filesystem::path golden_folder();

// Returns the tensor that nested lists of numbers, or one number, stand for. NaN and infinities are strings there
// ("NaN", "Infinity", "-Infinity"), which check_golden() makes of the words that Python writes.
torch::Tensor golden_tensor(const nlohmann::json& numbers, torch::ScalarType dtype = torch::kDouble);
// The same for one number.
double golden_number(const nlohmann::json& number);

// The distance that numbers may have: |actual - wanted| <= absolute + relative * |wanted|.
struct Tolerance {
  double absolute = 0.0;
  double relative = 0.0;
};

// Returns where two tensors differ most, as a sentence that begins with `what`, or an empty text where all elements
// agree. Shapes have to be equal; NaN agrees with NaN.
std::string difference(const std::string& what, const torch::Tensor& actual, const torch::Tensor& wanted,
                       Tolerance tolerance);
// The same for two numbers.
std::string difference(const std::string& what, double actual, double wanted, Tolerance tolerance);

}  // namespace cohort::testing
