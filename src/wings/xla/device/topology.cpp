#include "wings/xla/device/topology.h"

#include <algorithm>

#include "base/fail.h"
#include "wings/xla/device/state.h"
#include "wings/xla/device/text.h"
#include "wings/xla/device/within.h"

namespace cohort {

XlaTopologyPtr XlaTopology::create(XlaPluginPtr plugin, const std::string& name, const XlaTopologyOptions& options) {
  using Handle = std::shared_ptr<pjrt::TopologyDescription>;
  const auto make = [plugin, name, values = options.options]() -> Handle {
    const NamedValues named(values);
    pjrt::TopologyDescriptionCreateArgs args;
    args.topology_name = name.data();
    args.topology_name_size = name.size();
    args.create_options = named.data();
    args.num_options = named.size();
    const std::string operation = "PJRT_TopologyDescription_Create of \"" + name + "\"";
    plugin->call(&pjrt::Api::topology_description_create, operation.c_str(), args);
    return owned(plugin, args.topology, &pjrt::TopologyDescriptionDestroyArgs::topology,
                 &pjrt::Api::topology_description_destroy, "PJRT_TopologyDescription_Destroy");
  };
  const std::string what = "the plugin " + plugin->name() + " to describe the topology \"" + name + "\"";
  return std::make_shared<const XlaTopology>(plugin, name, within<Handle>(options.limit, what, make));
}

XlaTopology::XlaTopology(XlaPluginPtr plugin, std::string name, std::shared_ptr<pjrt::TopologyDescription> topology)
    : plugin_(std::move(plugin)), name_(std::move(name)), topology_(std::move(topology)) {
  pjrt::TopologyDescriptionPlatformNameArgs platform;
  platform.topology = topology_.get();
  plugin_->call(&pjrt::Api::topology_description_platform_name, "PJRT_TopologyDescription_PlatformName", platform);
  platform_ = std::string(platform.platform_name, platform.platform_name_size);
  pjrt::TopologyDescriptionPlatformVersionArgs version;
  version.topology = topology_.get();
  plugin_->call(&pjrt::Api::topology_description_platform_version, "PJRT_TopologyDescription_PlatformVersion", version);
  platform_version_ = std::string(version.platform_version, version.platform_version_size);
  pjrt::TopologyDescriptionGetDeviceDescriptionsArgs all;
  all.topology = topology_.get();
  plugin_->call(&pjrt::Api::topology_description_get_device_descriptions,
                "PJRT_TopologyDescription_GetDeviceDescriptions", all);
  for (std::size_t i = 0; i < all.num_descriptions; ++i) {
    devices_.push_back(describe_device(*plugin_, all.descriptions[i]));
    devices_.back().local = false;
  }
  std::sort(devices_.begin(), devices_.end(), [](const XlaDevice& a, const XlaDevice& b) { return a.id < b.id; });
}

std::shared_ptr<const XlaProgram> XlaTopology::compile(const std::string& text,
                                                       const XlaCompileOptions& options) const {
  check_options(options);
  check_text(text, options);
  const std::size_t wanted = static_cast<std::size_t>(options.num_replicas) * options.num_partitions;
  if (wanted > devices_.size()) {
    fail<InvalidArgument>("[xla] a program for ", options.num_replicas, " replica(s) of ", options.num_partitions,
                          " partition(s) does not fit the topology \"", name_, "\", which has ", devices_.size(),
                          " device(s)");
  }
  std::vector<int> ids = options.devices;
  for (std::size_t i = ids.size(); i < wanted; ++i) ids.push_back(devices_[i].id);
  const auto build = [plugin = plugin_, topology = topology_,
                      encoded = encode_options(options, ids)](pjrt::Program& program) {
    pjrt::CompileArgs args;
    args.topology = topology.get();
    args.program = &program;
    args.compile_options = encoded.data();
    args.compile_options_size = encoded.size();
    plugin->call(&pjrt::Api::compile, "PJRT_Compile", args);
    return owned(plugin, args.executable, &pjrt::ExecutableDestroyArgs::executable, &pjrt::Api::executable_destroy,
                 "PJRT_Executable_Destroy");
  };
  return std::make_shared<const XlaProgram>(plugin_, compile_text(*plugin_, text, options, build));
}

}  // namespace cohort
