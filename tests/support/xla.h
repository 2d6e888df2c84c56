// XLA's own plugin for CPUs, for tests that need a real one.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "wings/xla/device/client.h"
#include "wings/xla/device/find_plugin.h"

namespace cohort::testing {

// The text of tests that need the plugin and do not find it. Their entries in ctest have this text as
// SKIP_REGULAR_EXPRESSION.
inline constexpr const char* kNoCpuPlugin = "XLA's plugin for CPUs is not here; scripts/install-deps.sh xla brings it";

// Returns the plugin for CPUs of the build folder, or the one that PJRT_NAMES_AND_LIBRARY_PATHS names "cpu"; null if
// there is none.
inline XlaPluginPtr cpu_plugin() {
  for (const XlaPluginPlace& place : list_xla_plugins()) {
    if (place.name == "cpu") return XlaPlugin::load(place);
  }
  return nullptr;
}

// A test with a client of so many CPU devices; skipped without the plugin.
class XlaCpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    plugin_ = cpu_plugin();
    if (!plugin_) GTEST_SKIP() << kNoCpuPlugin;
  }

  XlaClientPtr client(int devices) const {
    return XlaClient::create(plugin_, {.options = {{"cpu_device_count", int64_t{devices}}}});
  }

  XlaPluginPtr plugin_;
};

}  // namespace cohort::testing
