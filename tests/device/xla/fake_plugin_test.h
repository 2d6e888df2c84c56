// A test with a copy of the tests' own plugin, which knows nothing of other tests.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "device/xla/client.h"
#include "tests/device/xla/fake_plugin.h"
#include "tests/support/files.h"

namespace cohort::testing {

class FakePluginTest : public ::testing::Test {
 protected:
  FakePluginTest() {
    const std::filesystem::path tests = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    std::filesystem::copy(tests / "libcohort_fake_plugin.so", place_.path);
    void* const library = ::dlopen(place_.path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(::dlerror());
    fake_ = reinterpret_cast<FakePluginEntry>(::dlsym(library, "fake_plugin"))();
  }
  ~FakePluginTest() override {
    for (const auto& happen : fake_->hanging) happen();
  }

  // Returns the plugin, loaded.
  XlaPluginPtr load() const { return XlaPlugin::load(place_); }
  FakePlugin& fake() const { return *fake_; }
  void fail(const std::string& function, pjrt::ErrorCode code, const std::string& message) const {
    fake_->failures[function] = {code, message};
  }
  // Waits until a function of the plugin is called. A test whose call was left because it took too long waits for the
  // end of it, since its thread may not go on while the process ends.
  bool comes_to(const std::string& function) const {
    for (int i = 0; i < 1000 && fake().count(function) == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return fake().count(function) > 0;
  }

  TemporaryFolder folder_;
  XlaPluginPlace place_{"fake", folder_ / "fake_plugin.so", "--xla_plugin"};

 private:
  FakePlugin* fake_ = nullptr;
};

}  // namespace cohort::testing
