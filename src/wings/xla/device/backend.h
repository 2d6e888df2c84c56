// The devices of an XLA plugin as a back end: work is recorded (src/wings/xla/record) and runs where a step ends, or a
// value is read. There are none before open_xla().
#pragma once

#include <memory>
#include <string>

#include "device/backend.h"
#include "wings/xla/device/client.h"
#include "wings/xla/device/runner.h"
#include "wings/xla/record/runner.h"

namespace cohort {

struct XlaOpenOptions {
  std::string plugin = "";             // as find_xla_plugin() takes it
  std::string source = "XlaStrategy";  // who asks, for messages
  XlaOptions options = {};             // the options that the plugin is to have
  std::string matmul_precision = "";   // default, high or highest; empty: as it is, default at first
  int64_t kept_programs = 0;           // how many compiled programs stay; 0: as it is, record::kKeptPrograms at first
  XlaOptions otherwise = {};           // those that it gets if `options` does not say and it is not open yet
  // The processes that open their devices together, as in XlaClientOptions; null: this one alone.
  std::shared_ptr<XlaProcesses> processes = nullptr;
};

// Opens the plugin's devices: from then on they are devices of the type XLA (TPU, where the plugin's platform is tpu)
// in this process, for the rest of its life. If they are open, they have to be those of the same plugin with these
// options. Call it before the first backward of the process. FailedPrecondition: another plugin is open, or an option
// was another one, or it was opened with other processes; or a backward came before. Others as XlaPlugin::load() and
// XlaClient::create(). Thread-safe.
XlaClientPtr open_xla(const XlaOpenOptions& options);

// Gives devices of the open plugin their cores, as XlaRunner::hold_cores(). FailedPrecondition: no plugin is open.
std::shared_ptr<const void> hold_xla_cores(const std::vector<std::vector<int>>& replicas);

// Returns what runs programs on the devices of the open plugin. FailedPrecondition: no plugin is open.
std::shared_ptr<XlaRunner> open_xla_runner();

// Makes one device of the type XLA that is not here: what is recorded for it goes to the runner. FailedPrecondition:
// this process has devices of XLA, or a backward came before. Thread-safe.
void open_absent_xla(std::shared_ptr<record::GraphRunner> runner);

std::unique_ptr<DeviceBackend> make_xla_backend();

}  // namespace cohort
