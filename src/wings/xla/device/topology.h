// Devices that need not be here, and compiling for them: what libtpu does on a machine without a TPU.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "wings/xla/device/client.h"
#include "wings/xla/device/program.h"

namespace cohort {

class XlaTopology;
using XlaTopologyPtr = std::shared_ptr<const XlaTopology>;

struct XlaTopologyOptions {
  // The options that the plugin takes, such as target_config of XLA's plugin for CUDA.
  XlaOptions options = {};
  // The longest that describing the devices may take.
  std::chrono::milliseconds limit = std::chrono::minutes(5);
};

// The devices of a machine or a pod by its name. Immutable and thread-safe.
class XlaTopology {
 public:
  // Describes the devices. libtpu knows names such as "v5e:2x2", "v5e:4x4", "v4:2x2x2", "v5p:2x2x1", "v6e:2x2" and
  // "tpu7x:2x2x1". Errors are the plugin's, and name the topology.
  static XlaTopologyPtr create(XlaPluginPtr plugin, const std::string& name, const XlaTopologyOptions& options = {});
  XlaTopology(XlaPluginPtr plugin, std::string name, std::shared_ptr<pjrt::TopologyDescription> topology);

  const std::string& name() const { return name_; }
  const XlaPlugin& plugin() const { return *plugin_; }
  // Returns "tpu", "cuda".
  const std::string& platform() const { return platform_; }
  const std::string& platform_version() const { return platform_version_; }
  // Returns the devices, in the order of their ids. None is this process's.
  const std::vector<XlaDevice>& devices() const { return devices_; }

  // Compiles a module of StableHLO, as text, for these devices; without options for the first one. InvalidArgument: the
  // text is wrong, or more devices are wanted than there are.
  std::shared_ptr<const XlaProgram> compile(const std::string& text, const XlaCompileOptions& options = {}) const;

 private:
  XlaPluginPtr plugin_;
  std::string name_;
  std::shared_ptr<pjrt::TopologyDescription> topology_;
  std::string platform_;
  std::string platform_version_;
  std::vector<XlaDevice> devices_;
};

}  // namespace cohort
