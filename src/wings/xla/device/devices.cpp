// The client: its devices, and what they tell of themselves.
#include <algorithm>
#include <set>

#include "base/fail.h"
#include "wings/xla/device/state.h"
#include "wings/xla/device/within.h"

namespace cohort {

namespace {

template <typename Value>
const Value* attribute(const XlaOptions& attributes, const char* name) {
  const auto found = attributes.find(name);
  return found == attributes.end() ? nullptr : std::get_if<Value>(&found->second);
}

int id_of(const XlaPlugin& plugin, pjrt::DeviceDescription* description) {
  pjrt::DeviceDescriptionIdArgs args;
  args.device_description = description;
  plugin.call(&pjrt::Api::device_description_id, "PJRT_DeviceDescription_Id", args);
  return args.id;
}

// Fills in the platform's name and version and the number of the process.
void describe_platform(XlaClient::State& state) {
  pjrt::ClientPlatformNameArgs name;
  name.client = state.client.get();
  state.plugin->call(&pjrt::Api::client_platform_name, "PJRT_Client_PlatformName", name);
  state.platform = std::string(name.platform_name, name.platform_name_size);
  pjrt::ClientPlatformVersionArgs version;
  version.client = state.client.get();
  state.plugin->call(&pjrt::Api::client_platform_version, "PJRT_Client_PlatformVersion", version);
  state.platform_version = std::string(version.platform_version, version.platform_version_size);
  pjrt::ClientProcessIndexArgs process;
  process.client = state.client.get();
  state.plugin->call(&pjrt::Api::client_process_index, "PJRT_Client_ProcessIndex", process);
  state.process = process.process_index;
}

std::optional<XlaMemory> memory_of(const XlaPlugin& plugin, pjrt::Device* device) {
  pjrt::DeviceMemoryStatsArgs args;
  args.device = device;
  try {
    plugin.call(&pjrt::Api::device_memory_stats, "PJRT_Device_MemoryStats", args);
  } catch (const Unimplemented&) {
    return std::nullopt;
  }
  XlaMemory memory{.in_use = args.bytes_in_use, .peak = std::nullopt, .limit = std::nullopt};
  if (args.peak_bytes_in_use_is_set) memory.peak = args.peak_bytes_in_use;
  if (args.bytes_limit_is_set) memory.limit = args.bytes_limit;
  return memory;
}

void list_devices(XlaClient::State& state) {
  pjrt::ClientDevicesArgs all;
  all.client = state.client.get();
  state.plugin->call(&pjrt::Api::client_devices, "PJRT_Client_Devices", all);
  for (std::size_t i = 0; i < all.num_devices; ++i) {
    pjrt::DeviceGetDescriptionArgs described;
    described.device = all.devices[i];
    state.plugin->call(&pjrt::Api::device_get_description, "PJRT_Device_GetDescription", described);
    XlaDevice device = describe_device(*state.plugin, described.device_description);
    pjrt::DeviceIsAddressableArgs local;
    local.device = all.devices[i];
    state.plugin->call(&pjrt::Api::device_is_addressable, "PJRT_Device_IsAddressable", local);
    device.local = local.is_addressable;
    if (device.local) {
      state.local_devices.push_back(device.id);
      const std::optional<XlaMemory> memory = memory_of(*state.plugin, all.devices[i]);
      if (memory && memory->limit) device.memory_bytes = memory->limit;
    }
    state.handles[device.id] = all.devices[i];
    state.devices.push_back(std::move(device));
  }
}

}  // namespace

XlaDevice describe_device(const XlaPlugin& plugin, pjrt::DeviceDescription* description) {
  XlaDevice device;
  device.id = id_of(plugin, description);
  pjrt::DeviceDescriptionProcessIndexArgs process;
  process.device_description = description;
  plugin.call(&pjrt::Api::device_description_process_index, "PJRT_DeviceDescription_ProcessIndex", process);
  device.process = process.process_index;
  pjrt::DeviceDescriptionKindArgs kind;
  kind.device_description = description;
  plugin.call(&pjrt::Api::device_description_kind, "PJRT_DeviceDescription_Kind", kind);
  device.kind = std::string(kind.device_kind, kind.device_kind_size);
  pjrt::DeviceDescriptionToStringArgs name;
  name.device_description = description;
  plugin.call(&pjrt::Api::device_description_to_string, "PJRT_DeviceDescription_ToString", name);
  device.name = std::string(name.to_string, name.to_string_size);
  pjrt::DeviceDescriptionAttributesArgs told;
  told.device_description = description;
  plugin.call(&pjrt::Api::device_description_attributes, "PJRT_DeviceDescription_Attributes", told);
  device.attributes = read_values(told.attributes, told.num_attributes);
  if (const auto* place = attribute<std::vector<int64_t>>(device.attributes, "coords")) device.coordinates = *place;
  if (const auto* core = attribute<int64_t>(device.attributes, "core_on_chip")) {
    device.core_on_chip = static_cast<int>(*core);
  }
  if (const auto* bytes = attribute<int64_t>(device.attributes, "device_memory_bytes_limit")) {
    device.memory_bytes = *bytes;
  }
  return device;
}

namespace {

// libtpu finds the processes of its pod by its own variables, and takes no options for them.
bool knows_its_pod(const XlaPlugin& plugin) {
  return plugin.name() == "tpu" || plugin.path().filename().string().starts_with("libtpu");
}

XlaOptions options_of(const XlaPlugin& plugin, const XlaClientOptions& options) {
  XlaOptions all = options.options;
  if (options.processes == nullptr || knows_its_pod(plugin)) return all;
  all.emplace("node_id", int64_t{options.processes->index()});
  all.emplace("num_nodes", int64_t{options.processes->count()});
  return all;
}

}  // namespace

XlaClientPtr XlaClient::create(XlaPluginPtr plugin, const XlaClientOptions& options) {
  const auto make = [plugin, processes = options.processes, values = options_of(*plugin, options)] {
    const NamedValues named(values);
    pjrt::ClientCreateArgs args;
    args.create_options = named.data();
    args.num_options = named.size();
    if (processes != nullptr) offer_store(*processes, args);
    plugin->call(&pjrt::Api::client_create, "PJRT_Client_Create", args);
    return owned(plugin, args.client, &pjrt::ClientDestroyArgs::client, &pjrt::Api::client_destroy,
                 "PJRT_Client_Destroy");
  };
  auto state = std::make_unique<State>();
  state->plugin = plugin;
  state->processes = options.processes;
  std::function<void()> look;
  if (options.processes != nullptr) {
    look = [&] {
      const auto reason = options.processes->failure();
      if (reason) fail<Unavailable>(plugin->speaker(), ": it cannot open its devices, because ", *reason);
    };
  }
  state->client = within<std::shared_ptr<pjrt::Client>>(
      options.limit, "the plugin " + plugin->name() + " to open its devices", make, look);
  describe_platform(*state);
  list_devices(*state);
  return std::make_shared<const XlaClient>(std::move(state));
}

XlaClient::XlaClient(std::unique_ptr<State> state) : state_(std::move(state)) {}
XlaClient::~XlaClient() = default;

const XlaPlugin& XlaClient::plugin() const {
  return *state_->plugin;
}
const std::string& XlaClient::platform() const {
  return state_->platform;
}
const std::string& XlaClient::platform_version() const {
  return state_->platform_version;
}
int XlaClient::process() const {
  return state_->process;
}
int XlaClient::num_processes() const {
  std::set<int> processes;
  for (const XlaDevice& device : state_->devices) processes.insert(device.process);
  return static_cast<int>(processes.size());
}
const std::vector<XlaDevice>& XlaClient::devices() const {
  return state_->devices;
}
const std::vector<int>& XlaClient::local_devices() const {
  return state_->local_devices;
}

const XlaDevice& XlaClient::device(int id) const {
  std::string known;
  for (const XlaDevice& device : state_->devices) {
    if (device.id == id) return device;
    known.append(known.empty() ? "" : ", ").append(std::to_string(device.id));
  }
  fail<NotFound>(plugin().speaker(), ": there is no device ", id, ", only ", known);
}

std::optional<XlaMemory> XlaClient::memory(int device) const {
  if (!this->device(device).local) {
    fail<InvalidArgument>(plugin().speaker(), ": the device ", device, " is another process's");
  }
  return memory_of(plugin(), state_->handles.at(device));
}

std::vector<int> XlaClient::default_devices(int num_replicas, int num_partitions) const {
  std::vector<int> ids(static_cast<std::size_t>(num_replicas) * static_cast<std::size_t>(num_partitions));
  pjrt::ClientDefaultDeviceAssignmentArgs args;
  args.client = state_->client.get();
  args.num_replicas = num_replicas;
  args.num_partitions = num_partitions;
  args.default_assignment_size = ids.size();
  args.default_assignment = ids.data();
  plugin().call(&pjrt::Api::client_default_device_assignment, "PJRT_Client_DefaultDeviceAssignment", args);
  return ids;
}

}  // namespace cohort
