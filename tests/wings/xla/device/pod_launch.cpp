// Launches: what the devices of other processes get comes from them in files; see pod_plugin.h.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/wings/xla/device/pod_plugin.h"

namespace cohort::pjrt {

namespace {

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

}  // namespace

Error* execute(LoadedExecutableExecuteArgs* args) {
  Loaded loaded;
  int64_t launch = 0;
  {
    const std::scoped_lock lock(pod().mutex);
    loaded = pod().programs.at(args->executable);
    if (loaded.own.size() != loaded.all.size()) launch = ++pod().launches;
  }
  if (launch == 0) return pod().real->loaded_executable_execute(args);
  const char* const dies = std::getenv("POD_DIES");
  if (dies != nullptr && std::to_string(launch) == dies) ::raise(SIGKILL);
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

}  // namespace cohort::pjrt
