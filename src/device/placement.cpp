#include <spdlog/sinks/sink.h>

#include <atomic>

#include "base/extension.h"
#include "base/fail.h"
#include "base/log.h"
#include "cohort/device.h"
#include "device/backend.h"

namespace cohort {

namespace {

std::atomic<bool> soft_placement{true};
std::atomic<bool> log_placement{false};

// The scopes that this thread is in, each already merged with the outer ones.
std::vector<LogicalDevice>& scopes() {
  thread_local std::vector<LogicalDevice> stack;
  return stack;
}

LogicalDevice resolve(const DeviceSpec& spec) {
  try {
    return find_logical_device(spec);
  } catch (const NotFound& error) {
    const bool gpu = spec.type.value_or("CPU") != "CPU";
    if (!soft_placement || !gpu) throw InvalidArgument(error.what());
    warn_once(c10::str("[device] ", spec.short_form(), " is not there, using /CPU:0 (soft placement)"));
    return find_logical_device("/CPU:0");
  }
}

// The program has asked for these lines, so that they come whatever the level of the logger is.
void log_placed(std::string_view name, torch::Device device) {
  const spdlog::logger& logger = log();
  if (!log_placement || logger.level() == spdlog::level::off) return;
  const std::string text =
      c10::str("[device] ", name, " placed on ", current_logical_device().spec.to_string(), " (", device.str(), ")");
  const spdlog::details::log_msg line(logger.name(), spdlog::level::info, text);
  for (const spdlog::sink_ptr& sink : logger.sinks()) sink->log(line);
}

}  // namespace

DeviceScope::DeviceScope(std::string_view name) {
  const DeviceSpec inner = DeviceSpec::parse(name);
  if (name.empty()) {
    scopes().push_back(find_logical_device("/CPU:0"));
    return;
  }
  const DeviceSpec outer = scopes().empty() ? DeviceSpec{} : scopes().back().spec;
  scopes().push_back(resolve(inner.merged_into(outer)));
}

DeviceScope::DeviceScope(const LogicalDevice& device) {
  scopes().push_back(device);
}

DeviceScope::~DeviceScope() {
  scopes().pop_back();
}

LogicalDevice current_logical_device() {
  return scopes().empty() ? find_logical_device("/CPU:0") : scopes().back();
}

torch::Device current_torch_device() {
  return scopes().empty() ? torch::Device(torch::kCPU) : scopes().back().torch_device;
}

torch::TensorOptions placement_options() {
  return torch::TensorOptions().device(current_torch_device());
}

torch::Tensor place(const torch::Tensor& tensor, std::string_view name) {
  log_placed(name, current_torch_device());
  return tensor.to(current_torch_device());
}

void place(torch::nn::Module& module, std::string_view name) {
  log_placed(name, current_torch_device());
  backend_of(current_torch_device()).move(module, current_torch_device());
}

void set_soft_device_placement(bool on) {
  soft_placement = on;
  for (const SoftPlacement& wing : extensions<SoftPlacement>()) wing.set(on);
}
bool get_soft_device_placement() {
  return soft_placement;
}
void set_log_device_placement(bool on) {
  log_placement = on;
}
bool get_log_device_placement() {
  return log_placement;
}

}  // namespace cohort
