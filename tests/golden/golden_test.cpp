// The reader of golden facts itself: what differs, throws or is missing is a failure.
#include "tests/golden/golden.h"

#include <ATen/Functions.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/files.h"

namespace cohort::testing::golden_test {

constexpr const char* kFile =
    R"({"about": "a NaN in a \" text", "cases": [{"n": 1.5}, {"n": NaN}, {"n": [[1, 2], [-Infinity, true]]}]})";

TEST(Golden, ReadsEveryCase) {
  const TemporaryFolder folder;
  write_file(folder / "facts.json", kFile);
  std::vector<torch::Tensor> seen;
  check_golden(folder.path(), "facts.json", [&](const nlohmann::json& golden) {
    seen.push_back(golden_tensor(golden.at("n")));
    return "";
  });
  ASSERT_EQ(seen.size(), 3U);
  EXPECT_EQ(seen[0].item<double>(), 1.5);
  EXPECT_TRUE(std::isnan(seen[1].item<double>()));
  EXPECT_EQ(seen[2].sizes(), (std::vector<int64_t>{2, 2}));
  EXPECT_TRUE(std::isinf(seen[2][1][0].item<double>()));
}

TEST(Golden, FailsByNameOfTheCase) {
  static TemporaryFolder folder;
  write_file(folder / "facts.json", kFile);
  EXPECT_NONFATAL_FAILURE(check_golden(folder.path(), "facts.json",
                                       [](const nlohmann::json& golden) {
                                         return golden.at("n") == 1.5
                                                    ? difference("n", 1.6, golden_number(golden.at("n")),
                                                                 {.absolute = 0.05})
                                                    : "";
                                       }),
                          "facts.json, case 0: n is 1.6, wanted 1.5");
  EXPECT_NONFATAL_FAILURE(check_golden(folder.path(), "facts.json",
                                       [](const nlohmann::json& golden) -> std::string {
                                         if (golden.at("n").is_array()) throw std::runtime_error("torn");
                                         return "";
                                       }),
                          "facts.json, case 2: an error: torn");
  EXPECT_NONFATAL_FAILURE(check_golden(folder.path(), "other.json", [](const nlohmann::json&) { return ""; }),
                          "has no other.json");
}

TEST(Golden, DifferencesAreSaidAndDoNotAgree) {
  static TemporaryFolder folder;
  write_file(folder / "facts.json", kFile);
  const auto check = [](const nlohmann::json& golden) { return golden.at("n") == 1.5 ? "other" : ""; };
  check_golden(folder.path(), "facts.json", check, {{0, "# Numbers that changed"}});
  EXPECT_NONFATAL_FAILURE(
      check_golden(folder.path(), "facts.json", check, {{0, "# Numbers that changed"}, {1, "# Numbers that changed"}}),
      "case 1: agrees now");
  EXPECT_NONFATAL_FAILURE(check_golden(folder.path(), "facts.json", check, {{0, "words that are not there"}}),
                          "does not have \"words that are not there\"");
}

// Every file of the folder is named by a test.
TEST(Golden, EveryFileIsRead) {
  if (!std::filesystem::is_directory(golden_folder())) GTEST_SKIP() << "there is no folder " << golden_folder();
  std::string tests;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("tests")) {
    if (entry.path().extension() == ".cpp") tests += read_file(entry.path());
  }
  for (const auto& entry : std::filesystem::directory_iterator(golden_folder())) {
    if (entry.path().extension() != ".json") continue;
    EXPECT_NE(tests.find('"' + entry.path().filename().string() + '"'), std::string::npos)
        << "no test reads " << entry.path();
  }
}

TEST(Golden, Differences) {
  const torch::Tensor wanted = at::tensor({1.0, 100.0, std::nan("")}, torch::kDouble);
  EXPECT_EQ(difference("w", wanted.clone(), wanted, {}), "");
  EXPECT_EQ(difference("w", at::tensor({1.0, 100.5, std::nan("")}, torch::kDouble), wanted, {.relative = 0.01}), "");
  EXPECT_NE(difference("w", at::tensor({1.5, 100.0, std::nan("")}, torch::kDouble), wanted, {.relative = 0.01}), "");
  EXPECT_NE(difference("w", at::tensor({1.0, 100.0, 0.0}, torch::kDouble), wanted, {.absolute = 1e9}), "");
  EXPECT_NE(difference("w", wanted.view({3, 1}), wanted, {}).find("shape"), std::string::npos);
}

}  // namespace cohort::testing::golden_test
