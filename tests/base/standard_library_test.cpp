#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::standard_library_test {
namespace {

// The libraries of PyPI's torch 2.11 have a std::filesystem::remove_all() of their own, which calls address 0.
TEST(StandardLibrary, IsTheSystems) {
  void* function = ::dlsym(RTLD_DEFAULT, "_ZNSt10filesystem10remove_allERKNS_7__cxx114pathERSt10error_code");
  ASSERT_NE(function, nullptr);
  Dl_info found{};
  ASSERT_NE(::dladdr(function, &found), 0);
  EXPECT_THAT(found.dli_fname, ::testing::HasSubstr("libstdc++"));
}

}  // namespace
}  // namespace cohort::standard_library_test
