#include "wings/xla/device/find_plugin.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cstdlib>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::find_plugin_test {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;

// The environment of plugins, put back at the end.
class FindPlugin : public ::testing::Test {
 protected:
  FindPlugin() {
    for (const char* const name : kNames) {
      const char* const value = std::getenv(name);
      before_.push_back(value == nullptr ? std::nullopt : std::optional<std::string>(value));
      ::unsetenv(name);
    }
    ::setenv("HOME", folder_.path().c_str(), 1);
  }
  ~FindPlugin() override {
    for (std::size_t i = 0; i < before_.size(); ++i) {
      before_[i] ? ::setenv(kNames[i], before_[i]->c_str(), 1) : ::unsetenv(kNames[i]);
    }
  }

  // Makes a file and the folders above it.
  std::string file(const std::string& path) const {
    std::filesystem::create_directories((folder_ / path).parent_path());
    testing::write_file(folder_ / path, "");
    return folder_ / path;
  }
  static XlaPluginPlace found(const std::string& name) {
    for (const XlaPluginPlace& place : list_xla_plugins()) {
      if (place.name == name) return place;
    }
    return {};
  }

  testing::TemporaryFolder folder_;

 private:
  static constexpr std::array kNames = {"PJRT_NAMES_AND_LIBRARY_PATHS", "TPU_LIBRARY_PATH", "HOME", "VIRTUAL_ENV"};
  std::vector<std::optional<std::string>> before_;
};

TEST_F(FindPlugin, ByNameInTheEnvironment) {
  const std::string mine = file("mine.so");
  const std::string other = file("other.so");
  const std::string both = "mine:" + mine + ",cpu:" + other;
  ::setenv("PJRT_NAMES_AND_LIBRARY_PATHS", both.c_str(), 1);
  EXPECT_EQ(find_xla_plugin("mine").path, mine);
  EXPECT_EQ(find_xla_plugin("cpu").path, other);  // before that of the build folder
  EXPECT_EQ(find_xla_plugin("").path, mine);
  EXPECT_EQ(find_xla_plugin("mine").source, "PJRT_NAMES_AND_LIBRARY_PATHS");
}

TEST_F(FindPlugin, AnEnvironmentThatIsWrongIsNamed) {
  for (const char* const wrong : {"mine", ":path", "mine:"}) {
    ::setenv("PJRT_NAMES_AND_LIBRARY_PATHS", wrong, 1);
    EXPECT_THAT(error_of<InvalidArgument>([] { list_xla_plugins(); }), HasSubstr("wanted name:path,name:path"));
  }
  ::setenv("PJRT_NAMES_AND_LIBRARY_PATHS", "mine:/none.so", 1);
  EXPECT_THAT(error_of<NotFound>([] { list_xla_plugins(); }), HasSubstr("names \"/none.so\", which is no file"));
  ::unsetenv("PJRT_NAMES_AND_LIBRARY_PATHS");
  ::setenv("TPU_LIBRARY_PATH", "/none.so", 1);
  EXPECT_THAT(error_of<NotFound>([] { list_xla_plugins(); }), HasSubstr("TPU_LIBRARY_PATH names"));
}

TEST_F(FindPlugin, InThePackagesOfPython) {
  const std::string cuda = file(".local/lib/python3.11/site-packages/jax_plugins/xla_cuda13/xla_cuda_plugin.so");
  EXPECT_EQ(found("cuda").path, cuda);
  const std::string newer = file(".local/lib/python3.13/site-packages/jax_plugins/xla_cuda12/xla_cuda_plugin.so");
  EXPECT_EQ(found("cuda").path, newer);
  ::setenv("VIRTUAL_ENV", (folder_ / "env").c_str(), 1);
  const std::string own = file("env/lib/python3.12/site-packages/jax_plugins/xla_cuda12/xla_cuda_plugin.so");
  EXPECT_EQ(found("cuda").path, own);
  EXPECT_EQ(found("cuda").source, "a Python package");
}

TEST_F(FindPlugin, ByTheVariableOfLibtpu) {
  const std::string path = file("libtpu.so");
  ::setenv("TPU_LIBRARY_PATH", path.c_str(), 1);
  EXPECT_EQ(found("tpu").path, path);
}

TEST_F(FindPlugin, ByItsPath) {
  EXPECT_EQ(find_xla_plugin(file("a/libtpu.so")).name, "tpu");
  EXPECT_EQ(find_xla_plugin(file("a/own.so")).name, "own");
  EXPECT_THAT(error_of<NotFound>([&] { find_xla_plugin((folder_ / "b.so").string()); }),
              AllOf(HasSubstr("--xla_plugin names"), HasSubstr("b.so\", which is no file")));
}

TEST_F(FindPlugin, WhatIsNotThereIsNamed) {
  ::setenv("PJRT_NAMES_AND_LIBRARY_PATHS", ("mine:" + file("mine.so")).c_str(), 1);
  EXPECT_THAT(error_of<NotFound>([] { find_xla_plugin("abacus"); }),
              AllOf(HasSubstr("[xla] --xla_plugin=abacus: there is no plugin of that name, only mine ("),
                    HasSubstr("the path of a file is taken, too")));
}

}  // namespace
}  // namespace cohort::find_plugin_test
