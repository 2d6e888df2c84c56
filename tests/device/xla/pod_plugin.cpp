// A pod for tests: a plugin over another one (XLA's for CPUs, POD_PLUGIN), whose devices it gives out as those of
// several processes. Each process has all of them, tells that its own are an equal part, and computes a program of all
// processes on all devices, with the values that the other processes bring, which lie in files of POD_FOLDER meanwhile.
// So numbers are XLA's own, and a launch waits for the other processes as on a TPU: for ever, where one of them is lost
// and POD_HANGS is set; without it, it fails as a device does that hears of it.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "device/xla/pjrt_programs.h"

namespace cohort::pjrt {

struct Error {  // those of this plugin; the other one's are opaque
  ErrorCode code;
  std::string message;
};

namespace {

// A program and its devices.
struct Loaded {
  std::vector<Device*> all;
  std::vector<Device*> own;
  std::size_t outputs = 0;
};

struct Pod {
  const Api* real = nullptr;
  Client* client = nullptr;
  int node = 0;
  int nodes = 1;
  int devices_of_node = 1;
  ClientCreateArgs store;  // the functions of the caller's store
  std::mutex mutex;
  std::map<LoadedExecutable*, Loaded> programs;
  std::vector<Error*> errors;  // that are alive
  int64_t launches = 0;        // of all processes
};

Pod& pod() {
  static Pod own;
  return own;
}

Error* make_error(ErrorCode code, const char* message, std::size_t size) {
  const std::scoped_lock lock(pod().mutex);
  return pod().errors.emplace_back(new Error{code, std::string(message, size)});
}

bool is_own(const Error* error) {
  const std::scoped_lock lock(pod().mutex);
  return std::find(pod().errors.begin(), pod().errors.end(), error) != pod().errors.end();
}

void error_destroy(ErrorDestroyArgs* args) {
  if (!is_own(args->error)) return pod().real->error_destroy(args);
  const std::scoped_lock lock(pod().mutex);
  std::erase(pod().errors, args->error);
  delete args->error;
}
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

#define TRY(call) \
  if (Error* const failure = call) return failure

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

// Waits for an event of the other plugin and destroys it.
void wait_for(Event* event) {
  struct Wait {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
  } wait;
  EventOnReadyArgs args;
  args.event = event;
  args.user_arg = &wait;
  args.callback = [](Error* error, void* user_arg) {
    auto& own = *static_cast<Wait*>(user_arg);
    if (error != nullptr) {
      ErrorDestroyArgs destroy;
      destroy.error = error;
      pod().real->error_destroy(&destroy);
    }
    const std::scoped_lock lock(own.mutex);
    own.done = true;
    own.changed.notify_all();
  };
  pod().real->event_on_ready(&args);
  std::unique_lock lock(wait.mutex);
  wait.changed.wait(lock, [&] { return wait.done; });
  EventDestroyArgs destroy;
  destroy.event = event;
  pod().real->event_destroy(&destroy);
}

// An array as it travels between processes.
struct Parcel {
  int64_t type = 0;
  std::vector<int64_t> dims;
  std::string bytes;
};

void write(std::ostream& out, const void* data, std::size_t size) {
  out.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
}
void write(std::ostream& out, int64_t number) {
  write(out, &number, sizeof(number));
}
int64_t read_number(std::istream& in) {
  int64_t number = 0;
  in.read(reinterpret_cast<char*>(&number), sizeof(number));
  return number;
}

Error* pack(Buffer* buffer, std::ostream& out) {
  BufferElementTypeArgs type;
  type.buffer = buffer;
  TRY(pod().real->buffer_element_type(&type));
  BufferDimensionsArgs dims;
  dims.buffer = buffer;
  TRY(pod().real->buffer_dimensions(&dims));
  std::vector<int64_t> order(dims.num_dims);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(order.size() - 1 - i);
  MemoryLayout layout;
  layout.tiled.minor_to_major = order.data();
  layout.tiled.minor_to_major_size = order.size();
  BufferToHostBufferArgs copy;
  copy.src = buffer;
  copy.host_layout = &layout;
  TRY(pod().real->buffer_to_host_buffer(&copy));  // tells the size
  std::string bytes(copy.dst_size, 0);
  if (!bytes.empty()) {
    copy.dst = bytes.data();
    TRY(pod().real->buffer_to_host_buffer(&copy));
    wait_for(copy.event);
  }
  write(out, type.type);
  write(out, static_cast<int64_t>(dims.num_dims));
  write(out, dims.dims, dims.num_dims * sizeof(int64_t));
  write(out, static_cast<int64_t>(bytes.size()));
  write(out, bytes.data(), bytes.size());
  return nullptr;
}

Error* unpack(std::istream& in, Device* device, Buffer*& buffer) {
  const int64_t type = read_number(in);
  std::vector<int64_t> dims(static_cast<std::size_t>(read_number(in)));
  for (int64_t& size : dims) size = read_number(in);
  std::string bytes(static_cast<std::size_t>(read_number(in)), 0);
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ClientBufferFromHostBufferArgs args;
  args.client = pod().client;
  args.data = bytes.data();
  args.type = static_cast<int>(type);
  args.dims = dims.data();
  args.num_dims = dims.size();
  args.device = device;
  TRY(pod().real->client_buffer_from_host_buffer(&args));
  wait_for(args.done_with_host_buffer);
  buffer = args.buffer;
  return nullptr;
}

std::filesystem::path file_of(int64_t launch, int node) {
  return std::filesystem::path(std::getenv("POD_FOLDER")) / (std::to_string(launch) + "_" + std::to_string(node));
}

// Returns the error of the store, if the processes are no longer together.
Error* lost() {
  CallbackError make = make_error;
  KeyValueTryGetCallbackArgs args;
  args.key = "nothing";
  args.key_size = 7;
  args.callback_error = &make;
  args.user_arg = pod().store.kv_try_get_user_arg;
  Error* const error = pod().store.kv_try_get_callback(&args);
  if (error == nullptr || error->code == kUnavailable) return error;
  ErrorDestroyArgs destroy;
  destroy.error = error;
  error_destroy(&destroy);
  return nullptr;
}

// Opens what another process brings to a launch, once it is there.
Error* await_file(int64_t launch, int node, std::ifstream& in) {
  using std::chrono::milliseconds;
  for (int round = 1; !std::filesystem::exists(file_of(launch, node)); ++round) {
    std::this_thread::sleep_for(milliseconds(1));
    Error* const error = round % 50 == 0 ? lost() : nullptr;
    if (error == nullptr) continue;
    if (std::getenv("POD_HANGS") == nullptr) return error;
    while (true) std::this_thread::sleep_for(milliseconds(1000));
  }
  in.open(file_of(launch, node), std::ios::binary);
  return nullptr;
}

void destroy(Buffer* buffer) {
  BufferDestroyArgs args;
  args.buffer = buffer;
  pod().real->buffer_destroy(&args);
}

// What the devices of other processes get and give in a launch.
struct Others {
  std::vector<std::vector<Buffer*>> arguments;  // of each device, empty for those of this process
  std::vector<std::vector<Buffer*>> outputs;    // of each device
  ~Others() {
    for (const auto& list : arguments) std::for_each(list.begin(), list.end(), destroy);
  }
};

Error* bring(const LoadedExecutableExecuteArgs& args, int64_t launch) {
  const std::filesystem::path part = file_of(launch, pod().node).string() + ".part";
  {
    std::ofstream out(part, std::ios::binary);
    for (std::size_t device = 0; device < args.num_devices; ++device) {
      for (std::size_t i = 0; i < args.num_args; ++i) TRY(pack(args.argument_lists[device][i], out));
    }
  }
  std::filesystem::rename(part, file_of(launch, pod().node));
  std::filesystem::remove(file_of(launch - 2, pod().node));  // which all have read: they came to the one after it
  return nullptr;
}

Error* take(const Loaded& loaded, std::size_t num_args, int64_t launch, Others& others) {
  others.arguments.resize(loaded.all.size());
  for (int node = 0; node < pod().nodes; ++node) {
    if (node == pod().node) continue;
    std::ifstream in;
    TRY(await_file(launch, node, in));
    for (std::size_t i = 0; i < loaded.all.size(); ++i) {
      if (id_of(loaded.all[i]) / pod().devices_of_node != node) continue;
      others.arguments[i].resize(num_args, nullptr);
      for (Buffer*& buffer : others.arguments[i]) TRY(unpack(in, loaded.all[i], buffer));
    }
  }
  return nullptr;
}

Error* execute(LoadedExecutableExecuteArgs* args) {
  Loaded loaded;
  int64_t launch = 0;
  {
    const std::scoped_lock lock(pod().mutex);
    loaded = pod().programs.at(args->executable);
    if (loaded.own.size() != loaded.all.size()) launch = ++pod().launches;
  }
  if (launch == 0) return pod().real->loaded_executable_execute(args);
  TRY(bring(*args, launch));
  Others others;
  TRY(take(loaded, args->num_args, launch, others));
  std::vector<Buffer* const*> in;
  std::vector<Buffer**> out;
  others.outputs.assign(loaded.all.size(), std::vector<Buffer*>(loaded.outputs));
  std::size_t own = 0;
  for (std::size_t i = 0; i < loaded.all.size(); ++i) {
    const bool here = is_own(loaded.all[i]);
    in.push_back(here ? args->argument_lists[own] : others.arguments[i].data());
    out.push_back(here ? args->output_lists[own] : others.outputs[i].data());
    own += here ? 1 : 0;
  }
  std::vector<Event*> done(loaded.all.size());
  LoadedExecutableExecuteArgs real = *args;
  real.argument_lists = in.data();
  real.output_lists = out.data();
  real.num_devices = loaded.all.size();
  real.device_complete_events = done.data();
  TRY(pod().real->loaded_executable_execute(&real));
  own = 0;
  for (std::size_t i = 0; i < loaded.all.size(); ++i) {
    if (is_own(loaded.all[i])) {
      args->device_complete_events[own++] = done[i];
      continue;
    }
    wait_for(done[i]);
    std::for_each(others.outputs[i].begin(), others.outputs[i].end(), destroy);
  }
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
