// Clients, devices and topologies; see fake_plugin.h.
#include "tests/wings/xla/device/fake_objects.h"

namespace cohort::testing {

using namespace pjrt;  // NOLINT: the plugin is made of its names

namespace {

void fill(DeviceDescription& description, int id, bool here) {
  description.id = id;
  description.name = "FakeDevice(" + std::to_string(id) + ")";
  description.coords = {id % 2, id / 2, 0};
  NamedValue coords;
  coords.name = "coords";
  coords.name_size = 6;
  coords.type = kInt64List;
  coords.int64_array_value = description.coords.data();
  coords.value_size = 3;
  NamedValue core;
  core.name = "core_on_chip";
  core.name_size = 12;
  core.type = kInt64;
  core.int64_value = 1;
  core.value_size = 1;
  NamedValue memory;
  memory.name = "device_memory_bytes_limit";
  memory.name_size = 25;
  memory.type = kInt64;
  memory.int64_value = 1 << 30;
  memory.value_size = 1;
  description.attributes = {coords, core};
  if (!here) description.attributes.push_back(memory);
}

Error* make_error(ErrorCode code, const char* message, std::size_t size) {
  return new Error{code, std::string(message, size)};
}

// Shares values through the caller's store as plugins do. Returns the first error.
Error* share(const ClientCreateArgs& args) {
  CallbackError make = make_error;
  const std::string own = "process/" + std::to_string(fake().process);
  const std::string value = "from " + std::to_string(fake().process);
  KeyValuePutCallbackArgs put;
  put.key = own.data();
  put.key_size = own.size();
  put.value = value.data();
  put.value_size = value.size();
  put.callback_error = &make;
  put.user_arg = args.kv_put_user_arg;
  if (Error* const error = args.kv_put_callback(&put)) return error;
  for (int process = 0; process < fake().processes; ++process) {
    if (process == fake().process) continue;
    const std::string key = "process/" + std::to_string(process);
    KeyValueGetCallbackArgs get;
    get.key = key.data();
    get.key_size = key.size();
    get.timeout_in_ms = fake().store_limit_ms;
    get.callback_error = &make;
    get.user_arg = args.kv_get_user_arg;
    if (Error* const error = args.kv_get_callback(&get)) return error;
    fake().shared.emplace_back(get.value, get.value_size);
    get.value_deleter_callback(get.value);
  }
  KeyValueTryGetCallbackArgs attempt;
  attempt.key = "nobody's";
  attempt.key_size = 8;
  attempt.callback_error = &make;
  attempt.user_arg = args.kv_try_get_user_arg;
  const std::unique_ptr<Error> missing(args.kv_try_get_callback(&attempt));
  fake().shared.push_back(missing ? std::to_string(missing->code) + " " + missing->message : "a value");
  return nullptr;
}

Error* client_create(ClientCreateArgs* args) {
  BEGIN("Client_Create");
  fake().whole_options.clear();
  for (std::size_t i = 0; i < args->num_options; ++i) {
    const NamedValue& each = args->create_options[i];
    if (each.type == kInt64) fake().whole_options[std::string(each.name, each.name_size)] = each.int64_value;
  }
  if (fake().shares) {
    if (Error* const error = share(*args)) return error;
  }
  auto* client = new Client;
  for (int i = 0; i < fake().devices; ++i) {
    client->devices.push_back(std::make_unique<Device>());
    fill(client->devices.back()->description, i, true);
    const int process = i / (fake().devices / fake().processes);
    client->devices.back()->description.process = process;
    client->devices.back()->local = process == fake().process;
    client->list.push_back(client->devices.back().get());
  }
  ++fake().clients;
  args->client = client;
  return nullptr;
}
Error* client_destroy(ClientDestroyArgs* args) {
  BEGIN("Client_Destroy");
  --fake().clients;
  delete args->client;
  return nullptr;
}
Error* platform_name(ClientPlatformNameArgs* args) {
  BEGIN("Client_PlatformName");
  args->platform_name = fake().platform.data();
  args->platform_name_size = fake().platform.size();
  return nullptr;
}
Error* platform_version(ClientPlatformVersionArgs* args) {
  BEGIN("Client_PlatformVersion");
  args->platform_version = "7";
  args->platform_version_size = 1;
  return nullptr;
}
Error* process_index(ClientProcessIndexArgs* args) {
  BEGIN("Client_ProcessIndex");
  args->process_index = fake().process;
  return nullptr;
}
Error* client_devices(ClientDevicesArgs* args) {
  BEGIN("Client_Devices");
  args->devices = args->client->list.data();
  args->num_devices = args->client->list.size();
  return nullptr;
}
Error* default_assignment(ClientDefaultDeviceAssignmentArgs* args) {
  BEGIN("Client_DefaultDeviceAssignment");
  for (int i = 0; i < args->num_replicas * args->num_partitions; ++i) args->default_assignment[i] = i;
  return nullptr;
}
Error* get_description(DeviceGetDescriptionArgs* args) {
  BEGIN("Device_GetDescription");
  args->device_description = &args->device->description;
  return nullptr;
}
Error* is_addressable(DeviceIsAddressableArgs* args) {
  BEGIN("Device_IsAddressable");
  args->is_addressable = args->device->local;
  return nullptr;
}
Error* memory_stats(DeviceMemoryStatsArgs* args) {
  BEGIN("Device_MemoryStats");
  args->bytes_in_use = 100;
  args->peak_bytes_in_use = 200;
  args->peak_bytes_in_use_is_set = true;
  args->bytes_limit = 1 << 30;
  args->bytes_limit_is_set = true;
  return nullptr;
}
Error* description_id(DeviceDescriptionIdArgs* args) {
  args->id = args->device_description->id;
  return nullptr;
}
Error* description_process(DeviceDescriptionProcessIndexArgs* args) {
  args->process_index = args->device_description->process;
  return nullptr;
}
Error* description_kind(DeviceDescriptionKindArgs* args) {
  args->device_kind = "Fake v1";
  args->device_kind_size = 7;
  return nullptr;
}
Error* description_text(DeviceDescriptionToStringArgs* args) {
  args->to_string = args->device_description->name.data();
  args->to_string_size = args->device_description->name.size();
  return nullptr;
}
Error* description_attributes(DeviceDescriptionAttributesArgs* args) {
  args->attributes = args->device_description->attributes.data();
  args->num_attributes = args->device_description->attributes.size();
  return nullptr;
}

Error* topology_create(TopologyDescriptionCreateArgs* args) {
  BEGIN("TopologyDescription_Create");
  if (std::string_view(args->topology_name, args->topology_name_size).starts_with("none")) {
    return new Error{kInvalidArgument, "there is no such topology"};
  }
  auto* topology = new TopologyDescription;
  for (int i = 0; i < fake().devices; ++i) {
    topology->devices.push_back(std::make_unique<DeviceDescription>());
    fill(*topology->devices.back(), i, false);
    topology->list.push_back(topology->devices.back().get());
  }
  args->topology = topology;
  return nullptr;
}
Error* topology_destroy(TopologyDescriptionDestroyArgs* args) {
  BEGIN("TopologyDescription_Destroy");
  delete args->topology;
  return nullptr;
}
Error* topology_name(TopologyDescriptionPlatformNameArgs* args) {
  args->platform_name = "fake";
  args->platform_name_size = 4;
  return nullptr;
}
Error* topology_version(TopologyDescriptionPlatformVersionArgs* args) {
  args->platform_version = "7";
  args->platform_version_size = 1;
  return nullptr;
}
Error* topology_devices(TopologyDescriptionGetDeviceDescriptionsArgs* args) {
  args->descriptions = args->topology->list.data();
  args->num_descriptions = args->topology->list.size();
  return nullptr;
}

}  // namespace

void fill_devices(Api& api) {
  api.client_create = client_create;
  api.client_destroy = client_destroy;
  api.client_platform_name = platform_name;
  api.client_platform_version = platform_version;
  api.client_process_index = process_index;
  api.client_devices = client_devices;
  api.client_default_device_assignment = default_assignment;
  api.device_get_description = get_description;
  api.device_is_addressable = is_addressable;
  api.device_memory_stats = memory_stats;
  api.device_description_id = description_id;
  api.device_description_process_index = description_process;
  api.device_description_kind = description_kind;
  api.device_description_to_string = description_text;
  api.device_description_attributes = description_attributes;
  api.topology_description_create = topology_create;
  api.topology_description_destroy = topology_destroy;
  api.topology_description_platform_name = topology_name;
  api.topology_description_platform_version = topology_version;
  api.topology_description_get_device_descriptions = topology_devices;
}

}  // namespace cohort::testing
