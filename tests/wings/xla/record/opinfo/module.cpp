// A library for Python's torch.ops.load_library(): installs the recorder and XLA's plugin for CPUs, so that "xla:0" is
// a device.
#include <torch/library.h>

#include <string>

#include "base/fail.h"
#include "wings/xla/device/find_plugin.h"
#include "wings/xla/device/runner.h"
#include "wings/xla/record/recorder.h"

namespace {

void open_plugin(const std::string& path) {
  cohort::record::install_recorder({.devices = 1});
  const auto plugin = cohort::XlaPlugin::load(cohort::find_xla_plugin(path));
  cohort::record::set_runner(
      cohort::make_xla_runner(cohort::XlaClient::create(plugin, {.options = {{"cpu_device_count", int64_t{1}}}})));
}

}  // namespace

TORCH_LIBRARY(cohort_opinfo, m) {
  m.def("open(str plugin) -> ()", [](std::string path) { open_plugin(path); });
}
