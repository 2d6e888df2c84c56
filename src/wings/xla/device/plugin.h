// A plugin: a shared library that exports PJRT, by which XLA compiles and runs programs on one kind of device.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "wings/xla/device/pjrt_programs.h"
#include "wings/xla/device/types.h"

namespace cohort {

// A plugin that was found, and not loaded yet.
struct XlaPluginPlace {
  std::string name;            // "cpu", "tpu", "cuda", or what the user calls it
  std::filesystem::path path;  // the shared library
  std::string source = "";     // what named it: "--xla_plugin", "TPU_LIBRARY_PATH", ...
};

// A plugin that is loaded, for the rest of the process: libraries with threads cannot be unloaded. Thread-safe.
class XlaPlugin {
 public:
  // Loads the plugin and initialises it, or returns the one that was loaded from the same file before. Signal handlers
  // that it installs meanwhile are put back to what they were, but for that of SIGPROF (libtpu installs some for
  // SIGSEGV, SIGABRT, SIGTERM and SIGFPE); load plugins before other threads change theirs.
  //
  // On a machine without a TPU these variables of libtpu are set, if they are not there: TPU_SKIP_MDS_QUERY=1 and
  // TPU_WORKER_HOSTNAMES=localhost, because it asks a metadata server for minutes otherwise, and
  // ALLOW_MULTIPLE_LIBTPU_LOAD=1, so that several processes can compile at a time. TF_CPP_MIN_LOG_LEVEL=1 is set
  // likewise, everywhere: XLA's remarks stay off the standard error, its warnings do not.
  //
  // NotFound: no such file. InvalidArgument: the file is no shared library, or not a plugin. Unimplemented: its version
  // of PJRT does not fit. DeadlineExceeded: loading took longer than the limit. Others: the plugin refused.
  static std::shared_ptr<const XlaPlugin> load(const XlaPluginPlace& place,
                                               std::chrono::milliseconds limit = std::chrono::minutes(5));

  // Returns the name and the path from which it was loaded.
  const std::string& name() const { return name_; }
  const std::filesystem::path& path() const { return path_; }
  // Returns the version of PJRT: "0.81".
  std::string version() const;
  // Returns what the plugin tells of itself, such as "xla_version" and "stablehlo_current_version".
  const XlaOptions& attributes() const { return attributes_; }
  // Returns "[xla] the plugin cpu", with which every message about it opens.
  std::string speaker() const { return "[xla] the plugin " + name_; }

  // Returns whether the plugin has a function of PJRT's table.
  template <typename Args>
  bool has(pjrt::Function<Args> pjrt::Api::*function) const {
    return present(&(api_->*function)) && api_->*function != nullptr;
  }
  // Fails with Unimplemented, because the plugin lacks the function.
  [[noreturn]] void lacks(std::string_view operation) const;
  // Calls a function. An error of the plugin becomes a cohort::Error that names the operation; Unimplemented: the
  // plugin lacks the function.
  template <typename Args>
  void call(pjrt::Function<Args> pjrt::Api::*function, const char* operation, Args& args) const {
    if (!has(function)) lacks(operation);
    check((api_->*function)(&args), operation);
  }
  // Calls a function that frees something. An error is logged.
  template <typename Args>
  void release(pjrt::Function<Args> pjrt::Api::*function, const char* operation, Args& args) const noexcept {
    if (has(function)) warn((api_->*function)(&args), operation);
  }
  // Returns what the plugin's error is to us, or null for none, and destroys it. The message says "speaker: operation
  // failed: ...".
  std::exception_ptr error_of(pjrt::Error* error, const std::string& operation) const;
  // Throws what the error is to us, if there is one.
  void check(pjrt::Error* error, const char* operation) const;

 private:
  XlaPlugin(XlaPluginPlace place, const pjrt::Api* api);

  static std::shared_ptr<const XlaPlugin> open(const XlaPluginPlace& place);
  bool present(const void* entry) const;
  void warn(pjrt::Error* error, const char* operation) const noexcept;
  void initialize();

  std::string name_;
  std::filesystem::path path_;
  const pjrt::Api* api_;
  XlaOptions attributes_;
};

using XlaPluginPtr = std::shared_ptr<const XlaPlugin>;

// The options in the form that PJRT takes. They live as long as this object.
class NamedValues {
 public:
  explicit NamedValues(XlaOptions options);
  NamedValues(const NamedValues&) = delete;
  NamedValues& operator=(const NamedValues&) = delete;

  const pjrt::NamedValue* data() const { return values_.data(); }
  std::size_t size() const { return values_.size(); }

 private:
  XlaOptions options_;
  std::vector<pjrt::NamedValue> values_;
};
// Returns the values that a plugin tells. Those of a type that is not known are left out.
XlaOptions read_values(const pjrt::NamedValue* values, std::size_t count);

// Returns whether a device of the PCI bus may be a TPU: Google's, and neither a network card nor a disk. "devices" is
// the folder that has a folder for each device.
bool may_have_tpu(const std::filesystem::path& devices = "/sys/bus/pci/devices");

}  // namespace cohort
