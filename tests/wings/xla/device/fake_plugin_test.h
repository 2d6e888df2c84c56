// A test with a copy of the tests' own plugin, which knows nothing of other tests.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/support/files.h"
#include "tests/wings/xla/device/fake_plugin.h"
#include "wings/xla/device/client.h"
#include "xla_messages.pb.h"

namespace cohort::testing {

// Returns the optimized form of a program that takes f32[4] and gives f32[4], perhaps in the memory of what it takes.
inline std::string program_of_four(bool donates) {
  xla_messages::ModuleWithConfig whole;
  xla_messages::Module& own = *whole.mutable_hlo_module();
  own.set_name("recorded");
  xla_messages::Shape array;
  array.set_element_type(11);
  array.add_dimensions(4);
  *own.mutable_host_program_shape()->add_parameters() = array;
  *own.mutable_host_program_shape()->mutable_result() = array;
  if (donates) own.mutable_input_output_alias()->add_entries()->set_parameter_number(0);
  return whole.SerializeAsString();
}

class FakePluginTest : public ::testing::Test {
 protected:
  FakePluginTest() {
    const std::filesystem::path tests = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    std::filesystem::copy(tests / "libcohort_fake_plugin.so", place_.path);
    void* const library = ::dlopen(place_.path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(::dlerror());
    fake_ = reinterpret_cast<FakePluginEntry>(::dlsym(library, "fake_plugin"))();
  }
  ~FakePluginTest() override { let_happen(); }

  // Returns the plugin, loaded.
  XlaPluginPtr load() const { return XlaPlugin::load(place_); }
  FakePlugin& fake() const { return *fake_; }
  void fail(const std::string& function, pjrt::ErrorCode code, const std::string& message) const {
    fake_->failures[function] = {code, message};
  }
  // Lets all events happen that hang.
  void let_happen() const {
    fake_->events_hang = false;
    for (const auto& happen : fake_->hanging) happen();
  }
  // Waits until a function of the plugin is called. A test whose call was left because it took too long waits for the
  // end of it, since its thread may not go on while the process ends.
  bool comes_to(const std::string& function) const {
    for (int i = 0; i < 3000 && fake().count(function) == 0; ++i) {
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
