// The table, the client and its programs; see pod_plugin.h.
#include "tests/wings/xla/device/pod_plugin.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace cohort::pjrt {

Pod& pod() {
  static Pod own;
  return own;
}

Error* make_error(ErrorCode code, const char* message, std::size_t size) {
  const std::scoped_lock lock(pod().mutex);
  return pod().errors.emplace_back(new Error{code, std::string(message, size)});
}

namespace {

bool is_own(const Error* error) {
  const std::scoped_lock lock(pod().mutex);
  return std::find(pod().errors.begin(), pod().errors.end(), error) != pod().errors.end();
}

}  // namespace

void error_destroy(ErrorDestroyArgs* args) {
  if (!is_own(args->error)) return pod().real->error_destroy(args);
  const std::scoped_lock lock(pod().mutex);
  std::erase(pod().errors, args->error);
  delete args->error;
}

int id_of(DeviceDescription* description) {
  DeviceDescriptionIdArgs args;
  args.device_description = description;
  pod().real->device_description_id(&args);
  return args.id;
}
int id_of(Device* device) {
  DeviceGetDescriptionArgs args;
  args.device = device;
  pod().real->device_get_description(&args);
  return id_of(args.device_description);
}
bool is_own(Device* device) {
  return id_of(device) / pod().devices_of_node == pod().node;
}

namespace {

void error_message(ErrorMessageArgs* args) {
  if (!is_own(args->error)) return pod().real->error_message(args);
  args->message = args->error->message.data();
  args->message_size = args->error->message.size();
}
Error* error_code(ErrorGetCodeArgs* args) {
  if (!is_own(args->error)) return pod().real->error_get_code(args);
  args->code = args->error->code;
  return nullptr;
}

// Removes what an earlier process of this number has left.
void clear_files() {
  const std::string end = "_" + std::to_string(pod().node);
  std::error_code none;
  for (const auto& file : std::filesystem::directory_iterator(std::getenv("POD_FOLDER"), none)) {
    if (file.path().filename().string().ends_with(end)) std::filesystem::remove(file.path(), none);
  }
}

// Says that this process is there, and waits for the others.
Error* meet() {
  CallbackError make = make_error;
  for (int node = 0; node < pod().nodes; ++node) {
    const std::string key = "here/" + std::to_string(node);
    if (node == pod().node) {
      KeyValuePutCallbackArgs put;
      put.key = key.data();
      put.key_size = key.size();
      put.value = "yes";
      put.value_size = 3;
      put.callback_error = &make;
      put.user_arg = pod().store.kv_put_user_arg;
      TRY(pod().store.kv_put_callback(&put));
      continue;
    }
    KeyValueGetCallbackArgs get;
    get.key = key.data();
    get.key_size = key.size();
    get.timeout_in_ms = 60000;
    get.callback_error = &make;
    get.user_arg = pod().store.kv_get_user_arg;
    TRY(pod().store.kv_get_callback(&get));
    get.value_deleter_callback(get.value);
  }
  return nullptr;
}

Error* client_create(ClientCreateArgs* args) {
  ClientCreateArgs real;
  std::vector<NamedValue> options;
  for (std::size_t i = 0; i < args->num_options; ++i) {
    const NamedValue& each = args->create_options[i];
    const std::string name(each.name, each.name_size);
    if (name == "node_id") {
      pod().node = static_cast<int>(each.int64_value);
    } else if (name == "num_nodes") {
      pod().nodes = static_cast<int>(each.int64_value);
    } else {
      options.push_back(each);
    }
  }
  pod().store = *args;
  clear_files();
  if (args->kv_get_callback != nullptr) TRY(meet());
  real.create_options = options.data();
  real.num_options = options.size();
  TRY(pod().real->client_create(&real));
  pod().client = args->client = real.client;
  ClientDevicesArgs devices;
  devices.client = real.client;
  TRY(pod().real->client_devices(&devices));
  pod().devices_of_node = static_cast<int>(devices.num_devices) / pod().nodes;
  return nullptr;
}

Error* process_index(ClientProcessIndexArgs* args) {
  args->process_index = pod().node;
  return nullptr;
}
Error* description_process(DeviceDescriptionProcessIndexArgs* args) {
  args->process_index = id_of(args->device_description) / pod().devices_of_node;
  return nullptr;
}
Error* is_addressable(DeviceIsAddressableArgs* args) {
  args->is_addressable = is_own(args->device);
  return nullptr;
}

Error* client_compile(ClientCompileArgs* args) {
  TRY(pod().real->client_compile(args));
  Loaded loaded;
  LoadedExecutableAddressableDevicesArgs devices;
  devices.executable = args->executable;
  TRY(pod().real->loaded_executable_addressable_devices(&devices));
  for (std::size_t i = 0; i < devices.num_addressable_devices; ++i) {
    Device* const device = devices.addressable_devices[i];
    loaded.all.push_back(device);
    if (is_own(device)) loaded.own.push_back(device);
  }
  LoadedExecutableGetExecutableArgs executable;
  executable.loaded_executable = args->executable;
  TRY(pod().real->loaded_executable_get_executable(&executable));
  ExecutableNumOutputsArgs outputs;
  outputs.executable = executable.executable;
  TRY(pod().real->executable_num_outputs(&outputs));
  loaded.outputs = outputs.num_outputs;
  ExecutableDestroyArgs destroy;
  destroy.executable = executable.executable;
  TRY(pod().real->executable_destroy(&destroy));
  const std::scoped_lock lock(pod().mutex);
  pod().programs[args->executable] = std::move(loaded);
  return nullptr;
}
Error* loaded_destroy(LoadedExecutableDestroyArgs* args) {
  {
    const std::scoped_lock lock(pod().mutex);
    pod().programs.erase(args->executable);
  }
  return pod().real->loaded_executable_destroy(args);
}
Error* addressable_devices(LoadedExecutableAddressableDevicesArgs* args) {
  const std::scoped_lock lock(pod().mutex);
  Loaded& loaded = pod().programs.at(args->executable);
  args->addressable_devices = loaded.own.data();
  args->num_addressable_devices = loaded.own.size();
  return nullptr;
}

}  // namespace
}  // namespace cohort::pjrt

extern "C" const cohort::pjrt::Api* GetPjrtApi() {
  using namespace cohort::pjrt;  // NOLINT: the plugin is made of its names
  static Api api{};
  void* const library = ::dlopen(std::getenv("POD_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  pod().real = reinterpret_cast<const Api* (*)()>(::dlsym(library, "GetPjrtApi"))();
  const std::size_t size = std::min(sizeof(api), pod().real->struct_size);
  std::memcpy(&api, pod().real, size);
  api.struct_size = size;
  api.error_destroy = error_destroy;
  api.error_message = error_message;
  api.error_get_code = error_code;
  api.client_create = client_create;
  api.client_process_index = process_index;
  api.client_compile = client_compile;
  api.device_description_process_index = description_process;
  api.device_is_addressable = is_addressable;
  api.loaded_executable_destroy = loaded_destroy;
  api.loaded_executable_addressable_devices = addressable_devices;
  api.loaded_executable_execute = execute;
  return &api;
}
