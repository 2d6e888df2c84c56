// The main function of every test executable. The files of a layer share one executable; "--file=NAME" runs the tests
// of one source file alone, so that ctest has an entry, with its own process and time limit, for each file, or for
// several quick ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <set>
#include <string>

namespace {

constexpr std::string_view kFlag = "--file=";

// Returns a filter that lets the tests of "file" through; it is empty if there are none. A test of the same name in
// another file is an error, because no filter can tell the two apart.
std::string filter_of(const std::string& file) {
  std::set<std::string> chosen;
  std::set<std::string> others;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      const std::string name = std::string(suite.name()) + "." + test.name();
      auto& names = std::string(test.file()).ends_with("/tests/" + file) ? chosen : others;
      if (!names.insert(name).second) others.insert(name);
    }
  }
  std::string filter;
  for (const std::string& name : chosen) {
    if (others.contains(name)) {
      std::cerr << "[tests] " << name << " is a test of " << file
                << " and another one; wanted names that are unique within a layer\n";
      return "";
    }
    filter += (filter.empty() ? "" : ":") + name;
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  std::string filters;
  for (int i = 1; i < argc; ++i) {
    if (!std::string_view(argv[i]).starts_with(kFlag)) continue;
    const std::string file = argv[i] + kFlag.size();
    const std::string filter = filter_of(file);
    if (filter.empty()) {
      std::cerr << "[tests] no test of " << file << " is in " << argv[0] << "\n";
      return 1;
    }
    filters += (filters.empty() ? "" : ":") + filter;
  }
  if (!filters.empty()) testing::GTEST_FLAG(filter) = filters;
  return RUN_ALL_TESTS();
}
