// The second part of PJRT's binary interface: programs, buffers, topologies, and the table of functions. See
// pjrt_abi.h.
#pragma once

#include "wings/xla/device/pjrt_abi.h"

namespace cohort::pjrt {

struct ExecutableDestroyArgs {
  std::size_t struct_size = sizeof(ExecutableDestroyArgs);
  void* extension_start = nullptr;
  Executable* executable = nullptr;
};
struct ExecutableNameArgs {
  std::size_t struct_size = sizeof(ExecutableNameArgs);
  void* extension_start = nullptr;
  Executable* executable = nullptr;
  const char* executable_name = nullptr;
  std::size_t executable_name_size = 0;
};
struct ExecutableNumReplicasArgs {
  std::size_t struct_size = sizeof(ExecutableNumReplicasArgs);
  void* extension_start = nullptr;
  Executable* executable = nullptr;
  std::size_t num_replicas = 0;
};
struct ExecutableNumPartitionsArgs {
  std::size_t struct_size = sizeof(ExecutableNumPartitionsArgs);
  void* extension_start = nullptr;
  Executable* executable = nullptr;
  std::size_t num_partitions = 0;
};
struct ExecutableNumOutputsArgs {
  std::size_t struct_size = sizeof(ExecutableNumOutputsArgs);
  void* extension_start = nullptr;
  Executable* executable = nullptr;
  std::size_t num_outputs = 0;
};
struct ExecutableGetCostAnalysisArgs {
  std::size_t struct_size = sizeof(ExecutableGetCostAnalysisArgs);
  void* extension_start = nullptr;
  Executable* executable = nullptr;
  std::size_t num_properties = 0;
  const NamedValue* properties = nullptr;
};
struct ExecutableOptimizedProgramArgs {
  std::size_t struct_size = sizeof(ExecutableOptimizedProgramArgs);
  void* extension_start = nullptr;
  Executable* executable = nullptr;
  Program* program = nullptr;
};
struct ExecutableSerializeArgs {
  std::size_t struct_size = sizeof(ExecutableSerializeArgs);
  void* extension_start = nullptr;
  const Executable* executable = nullptr;
  const char* serialized_bytes = nullptr;
  std::size_t serialized_bytes_size = 0;
  SerializedExecutable* serialized_executable = nullptr;
  void (*serialized_executable_deleter)(SerializedExecutable*) = nullptr;
};
struct ExecutableDeserializeAndLoadArgs {
  std::size_t struct_size = sizeof(ExecutableDeserializeAndLoadArgs);
  void* extension_start = nullptr;
  Client* client = nullptr;
  const char* serialized_executable = nullptr;
  std::size_t serialized_executable_size = 0;
  LoadedExecutable* loaded_executable = nullptr;
  const char* overridden_serialized_compile_options = nullptr;
  std::size_t overridden_serialized_compile_options_size = 0;
};
struct ExecutableGetCompiledMemoryStatsArgs {
  std::size_t struct_size = sizeof(ExecutableGetCompiledMemoryStatsArgs);
  void* extension_start = nullptr;
  Executable* executable = nullptr;
  int64_t generated_code_size_in_bytes = 0;
  int64_t argument_size_in_bytes = 0;
  int64_t output_size_in_bytes = 0;
  int64_t alias_size_in_bytes = 0;
  int64_t temp_size_in_bytes = 0;
  int64_t host_generated_code_size_in_bytes = 0;
  int64_t host_argument_size_in_bytes = 0;
  int64_t host_output_size_in_bytes = 0;
  int64_t host_alias_size_in_bytes = 0;
  int64_t host_temp_size_in_bytes = 0;
  int64_t peak_memory_in_bytes = 0;
};
struct LoadedExecutableDestroyArgs {
  std::size_t struct_size = sizeof(LoadedExecutableDestroyArgs);
  void* extension_start = nullptr;
  LoadedExecutable* executable = nullptr;
};
struct LoadedExecutableGetExecutableArgs {
  std::size_t struct_size = sizeof(LoadedExecutableGetExecutableArgs);
  void* extension_start = nullptr;
  LoadedExecutable* loaded_executable = nullptr;
  Executable* executable = nullptr;
};
struct LoadedExecutableAddressableDevicesArgs {
  std::size_t struct_size = sizeof(LoadedExecutableAddressableDevicesArgs);
  void* extension_start = nullptr;
  LoadedExecutable* executable = nullptr;
  Device* const* addressable_devices = nullptr;
  std::size_t num_addressable_devices = 0;
};
struct ExecuteOptions {
  std::size_t struct_size = sizeof(ExecuteOptions);
  void* extension_start = nullptr;
  void** send_callbacks = nullptr;
  void** recv_callbacks = nullptr;
  std::size_t num_send_ops = 0;
  std::size_t num_recv_ops = 0;
  int launch_id = 0;
  const int64_t* non_donatable_input_indices = nullptr;
  std::size_t num_non_donatable_input_indices = 0;
  void* context = nullptr;
  const char* call_location = nullptr;
  std::size_t num_tasks = 0;
  int* task_ids = nullptr;
  int64_t* incarnation_ids = nullptr;
};
struct LoadedExecutableExecuteArgs {
  std::size_t struct_size = sizeof(LoadedExecutableExecuteArgs);
  void* extension_start = nullptr;
  LoadedExecutable* executable = nullptr;
  ExecuteOptions* options = nullptr;
  Buffer* const* const* argument_lists = nullptr;
  std::size_t num_devices = 0;
  std::size_t num_args = 0;
  Buffer** const* output_lists = nullptr;
  Event** device_complete_events = nullptr;
  Device* execute_device = nullptr;
};

struct BufferDestroyArgs {
  std::size_t struct_size = sizeof(BufferDestroyArgs);
  void* extension_start = nullptr;
  Buffer* buffer = nullptr;
};
struct BufferElementTypeArgs {
  std::size_t struct_size = sizeof(BufferElementTypeArgs);
  void* extension_start = nullptr;
  Buffer* buffer = nullptr;
  int type = 0;  // an XlaType
};
struct BufferDimensionsArgs {
  std::size_t struct_size = sizeof(BufferDimensionsArgs);
  void* extension_start = nullptr;
  Buffer* buffer = nullptr;
  const int64_t* dims = nullptr;
  std::size_t num_dims = 0;
};
struct BufferToHostBufferArgs {
  std::size_t struct_size = sizeof(BufferToHostBufferArgs);
  void* extension_start = nullptr;
  Buffer* src = nullptr;
  MemoryLayout* host_layout = nullptr;
  void* dst = nullptr;
  std::size_t dst_size = 0;
  Event* event = nullptr;
};
struct BufferDeleteArgs {
  std::size_t struct_size = sizeof(BufferDeleteArgs);
  void* extension_start = nullptr;
  Buffer* buffer = nullptr;
};
struct BufferIsDeletedArgs {
  std::size_t struct_size = sizeof(BufferIsDeletedArgs);
  void* extension_start = nullptr;
  Buffer* buffer = nullptr;
  bool is_deleted = false;
};
struct BufferCopyToDeviceArgs {
  std::size_t struct_size = sizeof(BufferCopyToDeviceArgs);
  void* extension_start = nullptr;
  Buffer* buffer = nullptr;
  Device* dst_device = nullptr;
  Buffer* dst_buffer = nullptr;
};
struct BufferReadyEventArgs {
  std::size_t struct_size = sizeof(BufferReadyEventArgs);
  void* extension_start = nullptr;
  Buffer* buffer = nullptr;
  Event* event = nullptr;
};
struct BufferUnsafePointerArgs {
  std::size_t struct_size = sizeof(BufferUnsafePointerArgs);
  void* extension_start = nullptr;
  Buffer* buffer = nullptr;
  std::uintptr_t buffer_pointer = 0;
};

struct TopologyDescriptionCreateArgs {
  std::size_t struct_size = sizeof(TopologyDescriptionCreateArgs);
  void* extension_start = nullptr;
  const char* topology_name = nullptr;
  std::size_t topology_name_size = 0;
  const NamedValue* create_options = nullptr;
  std::size_t num_options = 0;
  TopologyDescription* topology = nullptr;
};
struct TopologyDescriptionDestroyArgs {
  std::size_t struct_size = sizeof(TopologyDescriptionDestroyArgs);
  void* extension_start = nullptr;
  TopologyDescription* topology = nullptr;
};
struct TopologyDescriptionPlatformVersionArgs {
  std::size_t struct_size = sizeof(TopologyDescriptionPlatformVersionArgs);
  void* extension_start = nullptr;
  TopologyDescription* topology = nullptr;
  const char* platform_version = nullptr;
  std::size_t platform_version_size = 0;
};
struct TopologyDescriptionPlatformNameArgs {
  std::size_t struct_size = sizeof(TopologyDescriptionPlatformNameArgs);
  void* extension_start = nullptr;
  const TopologyDescription* topology = nullptr;
  const char* platform_name = nullptr;
  std::size_t platform_name_size = 0;
};
struct TopologyDescriptionGetDeviceDescriptionsArgs {
  std::size_t struct_size = sizeof(TopologyDescriptionGetDeviceDescriptionsArgs);
  void* extension_start = nullptr;
  const TopologyDescription* topology = nullptr;
  DeviceDescription* const* descriptions = nullptr;
  std::size_t num_descriptions = 0;
};
struct CompileArgs {
  std::size_t struct_size = sizeof(CompileArgs);
  void* extension_start = nullptr;
  const TopologyDescription* topology = nullptr;
  const Program* program = nullptr;
  const char* compile_options = nullptr;
  std::size_t compile_options_size = 0;
  Client* client = nullptr;
  Executable* executable = nullptr;
};

// A pointer to a function that takes such a structure; null where a plugin lacks the function.
template <typename Args>
using Function = Error* (*)(Args*);
using Unused = void (*)();

// The table of a plugin's functions, in PJRT's order. A table of a plugin is as long as its struct_size says.
struct Api {
  std::size_t struct_size;
  void* extension_start;
  ApiVersion pjrt_api_version;
  void (*error_destroy)(ErrorDestroyArgs*);
  void (*error_message)(ErrorMessageArgs*);
  Function<ErrorGetCodeArgs> error_get_code;
  Function<PluginInitializeArgs> plugin_initialize;
  Function<PluginAttributesArgs> plugin_attributes;
  Function<EventDestroyArgs> event_destroy;
  Unused event_is_ready_error_await[3];
  Function<EventOnReadyArgs> event_on_ready;
  Function<ClientCreateArgs> client_create;
  Function<ClientDestroyArgs> client_destroy;
  Function<ClientPlatformNameArgs> client_platform_name;
  Function<ClientProcessIndexArgs> client_process_index;
  Function<ClientPlatformVersionArgs> client_platform_version;
  Function<ClientDevicesArgs> client_devices;
  Function<ClientDevicesArgs> client_addressable_devices;
  Unused client_lookups[3];
  Function<ClientCompileArgs> client_compile;
  Function<ClientDefaultDeviceAssignmentArgs> client_default_device_assignment;
  Function<ClientBufferFromHostBufferArgs> client_buffer_from_host_buffer;
  Function<DeviceDescriptionIdArgs> device_description_id;
  Function<DeviceDescriptionProcessIndexArgs> device_description_process_index;
  Function<DeviceDescriptionAttributesArgs> device_description_attributes;
  Function<DeviceDescriptionKindArgs> device_description_kind;
  Unused device_description_debug_string;
  Function<DeviceDescriptionToStringArgs> device_description_to_string;
  Function<DeviceGetDescriptionArgs> device_get_description;
  Function<DeviceIsAddressableArgs> device_is_addressable;
  Unused device_hardware_and_memories[3];
  Function<DeviceMemoryStatsArgs> device_memory_stats;
  Unused memories[5];
  Function<ExecutableDestroyArgs> executable_destroy;
  Function<ExecutableNameArgs> executable_name;
  Function<ExecutableNumReplicasArgs> executable_num_replicas;
  Function<ExecutableNumPartitionsArgs> executable_num_partitions;
  Function<ExecutableNumOutputsArgs> executable_num_outputs;
  Unused executable_size_of_generated_code;
  Function<ExecutableGetCostAnalysisArgs> executable_get_cost_analysis;
  Unused executable_output_memory_kinds;
  Function<ExecutableOptimizedProgramArgs> executable_optimized_program;
  Function<ExecutableSerializeArgs> executable_serialize;
  Function<LoadedExecutableDestroyArgs> loaded_executable_destroy;
  Function<LoadedExecutableGetExecutableArgs> loaded_executable_get_executable;
  Function<LoadedExecutableAddressableDevicesArgs> loaded_executable_addressable_devices;
  Unused loaded_executable_delete[2];
  Function<LoadedExecutableExecuteArgs> loaded_executable_execute;
  Function<ExecutableDeserializeAndLoadArgs> executable_deserialize_and_load;
  Unused loaded_executable_fingerprint;
  Function<BufferDestroyArgs> buffer_destroy;
  Function<BufferElementTypeArgs> buffer_element_type;
  Function<BufferDimensionsArgs> buffer_dimensions;
  Unused buffer_shapes[6];
  Function<BufferDeleteArgs> buffer_delete;
  Function<BufferIsDeletedArgs> buffer_is_deleted;
  Function<BufferCopyToDeviceArgs> buffer_copy_to_device;
  Function<BufferToHostBufferArgs> buffer_to_host_buffer;
  Unused buffer_is_on_cpu;
  Function<BufferReadyEventArgs> buffer_ready_event;
  Function<BufferUnsafePointerArgs> buffer_unsafe_pointer;
  Unused buffer_references[3];
  Unused copy_to_device_stream[5];
  Function<TopologyDescriptionCreateArgs> topology_description_create;
  Function<TopologyDescriptionDestroyArgs> topology_description_destroy;
  Function<TopologyDescriptionPlatformNameArgs> topology_description_platform_name;
  Function<TopologyDescriptionPlatformVersionArgs> topology_description_platform_version;
  Function<TopologyDescriptionGetDeviceDescriptionsArgs> topology_description_get_device_descriptions;
  Unused topology_description_serialize_and_attributes[2];
  Function<CompileArgs> compile;
  Unused executable_outputs[2];
  Unused buffer_copy_to_memory;
  Unused client_create_view_of_device_buffer;
  Unused executable_fingerprint;
  Unused client_topology_description;
  Function<ExecutableGetCompiledMemoryStatsArgs> executable_get_compiled_memory_stats;
};

using GetPjrtApi = const Api* (*)();

}  // namespace cohort::pjrt
