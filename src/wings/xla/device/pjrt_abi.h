// PJRT's binary interface, as far as it is used here: what XLA's plugins (libtpu, the plugins for CPUs and GPUs) export
// by the one function GetPjrtApi. The interface has major version 0, and within it fields and functions are only
// appended, never moved. Hence these declarations fit every plugin of minor version 57 and later. A structure tells its
// own size, and is filled with zeros before a call: a plugin that is older does not see the fields behind its own, one
// that is newer sees that its newest are missing. tests/wings/xla/device/abi_test.py compares each field with OpenXLA's
// own header. Names are OpenXLA's without the prefix PJRT_: PJRT_Client_Create_Args is ClientCreateArgs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cohort::pjrt {

inline constexpr int kMajor = 0;
inline constexpr int kOldestMinor = 57;

// These belong to a plugin and are only passed on.
struct Error;
struct Event;
struct Client;
struct Device;
struct DeviceDescription;
struct TopologyDescription;
struct Memory;
struct Buffer;
struct Executable;
struct LoadedExecutable;
struct SerializedExecutable;

struct ApiVersion {
  std::size_t struct_size = sizeof(ApiVersion);
  void* extension_start = nullptr;
  int major_version = 0;
  int minor_version = 0;
};

struct ErrorDestroyArgs {
  std::size_t struct_size = sizeof(ErrorDestroyArgs);
  void* extension_start = nullptr;
  Error* error = nullptr;
};
struct ErrorMessageArgs {
  std::size_t struct_size = sizeof(ErrorMessageArgs);
  void* extension_start = nullptr;
  const Error* error = nullptr;
  const char* message = nullptr;  // lives as long as the error
  std::size_t message_size = 0;
};
enum ErrorCode : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};
struct ErrorGetCodeArgs {
  std::size_t struct_size = sizeof(ErrorGetCodeArgs);
  void* extension_start = nullptr;
  const Error* error = nullptr;
  ErrorCode code = kOk;
};

enum NamedValueType : int { kString = 0, kInt64, kInt64List, kFloat, kBool };
struct NamedValue {
  std::size_t struct_size = sizeof(NamedValue);
  void* extension_start = nullptr;
  const char* name = nullptr;
  std::size_t name_size = 0;
  NamedValueType type = kString;
  union {
    const char* string_value;
    int64_t int64_value = 0;
    const int64_t* int64_array_value;
    float float_value;
    bool bool_value;
  };
  std::size_t value_size = 0;  // the number of elements of a text or a list, else 1
};

struct PluginInitializeArgs {
  std::size_t struct_size = sizeof(PluginInitializeArgs);
  void* extension_start = nullptr;
};
struct PluginAttributesArgs {
  std::size_t struct_size = sizeof(PluginAttributesArgs);
  void* extension_start = nullptr;
  const NamedValue* attributes = nullptr;
  std::size_t num_attributes = 0;
};

struct EventDestroyArgs {
  std::size_t struct_size = sizeof(EventDestroyArgs);
  void* extension_start = nullptr;
  Event* event = nullptr;
};
using EventCallback = void (*)(Error* error, void* user_arg);  // the error is the callback's to destroy
struct EventOnReadyArgs {
  std::size_t struct_size = sizeof(EventOnReadyArgs);
  void* extension_start = nullptr;
  Event* event = nullptr;
  EventCallback callback = nullptr;
  void* user_arg = nullptr;
};

// What a plugin calls to share values between the processes whose devices it has. The functions are the caller's,
// block, and may be called from any thread; callback_error makes the error that they return.
using CallbackError = Error* (*)(ErrorCode code, const char* message, std::size_t message_size);
struct KeyValueGetCallbackArgs {
  std::size_t struct_size = sizeof(KeyValueGetCallbackArgs);
  void* extension_start = nullptr;
  const char* key = nullptr;
  std::size_t key_size = 0;
  int timeout_in_ms = 0;
  CallbackError* callback_error = nullptr;
  void* user_arg = nullptr;
  char* value = nullptr;  // the plugin copies it, and then calls the deleter
  std::size_t value_size = 0;
  void (*value_deleter_callback)(char* value) = nullptr;
};
struct KeyValueTryGetCallbackArgs {
  std::size_t struct_size = sizeof(KeyValueTryGetCallbackArgs);
  void* extension_start = nullptr;
  const char* key = nullptr;
  std::size_t key_size = 0;
  CallbackError* callback_error = nullptr;
  void* user_arg = nullptr;
  char* value = nullptr;
  std::size_t value_size = 0;
  void (*value_deleter_callback)(char* value) = nullptr;
};
struct KeyValuePutCallbackArgs {
  std::size_t struct_size = sizeof(KeyValuePutCallbackArgs);
  void* extension_start = nullptr;
  const char* key = nullptr;
  std::size_t key_size = 0;
  const char* value = nullptr;
  std::size_t value_size = 0;
  CallbackError* callback_error = nullptr;
  void* user_arg = nullptr;
};
using KeyValueGetCallback = Error* (*)(KeyValueGetCallbackArgs*);
using KeyValueTryGetCallback = Error* (*)(KeyValueTryGetCallbackArgs*);
using KeyValuePutCallback = Error* (*)(KeyValuePutCallbackArgs*);

struct ClientCreateArgs {
  std::size_t struct_size = sizeof(ClientCreateArgs);
  void* extension_start = nullptr;
  const NamedValue* create_options = nullptr;
  std::size_t num_options = 0;
  KeyValueGetCallback kv_get_callback = nullptr;
  void* kv_get_user_arg = nullptr;
  KeyValuePutCallback kv_put_callback = nullptr;
  void* kv_put_user_arg = nullptr;
  Client* client = nullptr;
  KeyValueTryGetCallback kv_try_get_callback = nullptr;
  void* kv_try_get_user_arg = nullptr;
};
struct ClientDestroyArgs {
  std::size_t struct_size = sizeof(ClientDestroyArgs);
  void* extension_start = nullptr;
  Client* client = nullptr;
};
struct ClientPlatformNameArgs {
  std::size_t struct_size = sizeof(ClientPlatformNameArgs);
  void* extension_start = nullptr;
  Client* client = nullptr;
  const char* platform_name = nullptr;
  std::size_t platform_name_size = 0;
};
struct ClientProcessIndexArgs {
  std::size_t struct_size = sizeof(ClientProcessIndexArgs);
  void* extension_start = nullptr;
  Client* client = nullptr;
  int process_index = 0;
};
struct ClientPlatformVersionArgs {
  std::size_t struct_size = sizeof(ClientPlatformVersionArgs);
  void* extension_start = nullptr;
  Client* client = nullptr;
  const char* platform_version = nullptr;
  std::size_t platform_version_size = 0;
};
struct ClientDevicesArgs {
  std::size_t struct_size = sizeof(ClientDevicesArgs);
  void* extension_start = nullptr;
  Client* client = nullptr;
  Device* const* devices = nullptr;
  std::size_t num_devices = 0;
};

// The code of a program: the caller's, or memory of the caller's that is filled.
struct Program {
  std::size_t struct_size = sizeof(Program);
  void* extension_start = nullptr;
  char* code = nullptr;
  std::size_t code_size = 0;
  const char* format = nullptr;  // "mlir", "hlo", "hlo_with_config"
  std::size_t format_size = 0;
};
struct ClientCompileArgs {
  std::size_t struct_size = sizeof(ClientCompileArgs);
  void* extension_start = nullptr;
  Client* client = nullptr;
  const Program* program = nullptr;
  const char* compile_options = nullptr;
  std::size_t compile_options_size = 0;
  LoadedExecutable* executable = nullptr;
};
struct ClientDefaultDeviceAssignmentArgs {
  std::size_t struct_size = sizeof(ClientDefaultDeviceAssignmentArgs);
  void* extension_start = nullptr;
  Client* client = nullptr;
  int num_replicas = 0;
  int num_partitions = 0;
  std::size_t default_assignment_size = 0;
  int* default_assignment = nullptr;  // the caller's, filled
};

enum HostBufferSemantics : int {
  kImmutableOnlyDuringCall = 0,
  kImmutableUntilTransferCompletes = 1,
  kImmutableZeroCopy = 2,
  kMutableZeroCopy = 3,
};
struct MemoryLayoutTiled {
  std::size_t struct_size = sizeof(MemoryLayoutTiled);
  void* extension_start = nullptr;
  const int64_t* minor_to_major = nullptr;
  std::size_t minor_to_major_size = 0;
  const int64_t* tile_dims = nullptr;
  const std::size_t* tile_dim_sizes = nullptr;
  std::size_t num_tiles = 0;
};
enum MemoryLayoutType : int { kTiled = 0, kStrides };
struct MemoryLayout {
  std::size_t struct_size = sizeof(MemoryLayout);
  void* extension_start = nullptr;
  MemoryLayoutTiled tiled;  // the larger part of a union, the other of which is not used here
  MemoryLayoutType type = kTiled;
};
struct ClientBufferFromHostBufferArgs {
  std::size_t struct_size = sizeof(ClientBufferFromHostBufferArgs);
  void* extension_start = nullptr;
  Client* client = nullptr;
  const void* data = nullptr;
  int type = 0;  // an XlaType
  const int64_t* dims = nullptr;
  std::size_t num_dims = 0;
  const int64_t* byte_strides = nullptr;
  std::size_t num_byte_strides = 0;
  HostBufferSemantics host_buffer_semantics = kImmutableOnlyDuringCall;
  Device* device = nullptr;
  Memory* memory = nullptr;
  MemoryLayout* device_layout = nullptr;
  Event* done_with_host_buffer = nullptr;
  Buffer* buffer = nullptr;
};

struct DeviceDescriptionIdArgs {
  std::size_t struct_size = sizeof(DeviceDescriptionIdArgs);
  void* extension_start = nullptr;
  DeviceDescription* device_description = nullptr;
  int id = 0;
};
struct DeviceDescriptionProcessIndexArgs {
  std::size_t struct_size = sizeof(DeviceDescriptionProcessIndexArgs);
  void* extension_start = nullptr;
  DeviceDescription* device_description = nullptr;
  int process_index = 0;
};
struct DeviceDescriptionAttributesArgs {
  std::size_t struct_size = sizeof(DeviceDescriptionAttributesArgs);
  void* extension_start = nullptr;
  DeviceDescription* device_description = nullptr;
  std::size_t num_attributes = 0;
  const NamedValue* attributes = nullptr;
};
struct DeviceDescriptionKindArgs {
  std::size_t struct_size = sizeof(DeviceDescriptionKindArgs);
  void* extension_start = nullptr;
  DeviceDescription* device_description = nullptr;
  const char* device_kind = nullptr;
  std::size_t device_kind_size = 0;
};
struct DeviceDescriptionToStringArgs {
  std::size_t struct_size = sizeof(DeviceDescriptionToStringArgs);
  void* extension_start = nullptr;
  DeviceDescription* device_description = nullptr;
  const char* to_string = nullptr;
  std::size_t to_string_size = 0;
};
struct DeviceGetDescriptionArgs {
  std::size_t struct_size = sizeof(DeviceGetDescriptionArgs);
  void* extension_start = nullptr;
  Device* device = nullptr;
  DeviceDescription* device_description = nullptr;
};
struct DeviceIsAddressableArgs {
  std::size_t struct_size = sizeof(DeviceIsAddressableArgs);
  void* extension_start = nullptr;
  Device* device = nullptr;
  bool is_addressable = false;
};
struct DeviceMemoryStatsArgs {
  std::size_t struct_size = sizeof(DeviceMemoryStatsArgs);
  void* extension_start = nullptr;
  Device* device = nullptr;
  int64_t bytes_in_use = 0;
  int64_t peak_bytes_in_use = 0;
  bool peak_bytes_in_use_is_set = false;
  int64_t num_allocs = 0;
  bool num_allocs_is_set = false;
  int64_t largest_alloc_size = 0;
  bool largest_alloc_size_is_set = false;
  int64_t bytes_limit = 0;
  bool bytes_limit_is_set = false;
  int64_t bytes_reserved = 0;
  bool bytes_reserved_is_set = false;
  int64_t peak_bytes_reserved = 0;
  bool peak_bytes_reserved_is_set = false;
  int64_t bytes_reservable_limit = 0;
  bool bytes_reservable_limit_is_set = false;
  int64_t largest_free_block_bytes = 0;
  bool largest_free_block_bytes_is_set = false;
  int64_t pool_bytes = 0;
  bool pool_bytes_is_set = false;
  int64_t peak_pool_bytes = 0;
  bool peak_pool_bytes_is_set = false;
};

}  // namespace cohort::pjrt
