// Programs for the devices of a client: from text, or from the bytes of an earlier compilation.
#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "wings/xla/device/event.h"
#include "wings/xla/device/state.h"
#include "wings/xla/device/text.h"
#include "wings/xla/device/within.h"

namespace cohort {

namespace {

using LoadedPtr = std::shared_ptr<pjrt::LoadedExecutable>;

LoadedPtr own_loaded(const XlaPluginPtr& plugin, pjrt::LoadedExecutable* loaded) {
  return owned(plugin, loaded, &pjrt::LoadedExecutableDestroyArgs::executable, &pjrt::Api::loaded_executable_destroy,
               "PJRT_LoadedExecutable_Destroy");
}

// Returns the places of this process, in the plugin's order, by the devices of all places.
std::vector<XlaSlot> slots_of(const XlaClient::State& client, const LoadedPtr& loaded, const std::vector<int>& devices,
                              int num_partitions) {
  pjrt::LoadedExecutableAddressableDevicesArgs args;
  args.executable = loaded.get();
  client.plugin->call(&pjrt::Api::loaded_executable_addressable_devices, "PJRT_LoadedExecutable_AddressableDevices",
                      args);
  std::vector<XlaSlot> slots;
  for (std::size_t i = 0; i < args.num_addressable_devices; ++i) {
    const auto same = [&](const auto& each) { return each.second == args.addressable_devices[i]; };
    const auto handle = std::find_if(client.handles.begin(), client.handles.end(), same);
    const int id = handle == client.handles.end() ? -1 : handle->first;
    const auto place = std::find(devices.begin(), devices.end(), id);
    if (place == devices.end()) {
      fail<FailedPrecondition>(client.plugin->speaker(), ": the program runs on device ", id,
                               ", which is not among those that its options name: ",
                               to_text(std::vector<int64_t>(devices.begin(), devices.end())));
    }
    const int at = static_cast<int>(place - devices.begin());
    slots.push_back({.replica = at / num_partitions, .partition = at % num_partitions, .device = id});
  }
  return slots;
}

XlaExecutablePtr make_executable(const XlaClientPtr& client, LoadedPtr loaded, const XlaCompileOptions& options,
                                 const std::vector<int>& devices) {
  const XlaClient::State& own = client->state();
  auto state = std::make_unique<XlaExecutable::State>();
  pjrt::LoadedExecutableGetExecutableArgs args;
  args.loaded_executable = loaded.get();
  own.plugin->call(&pjrt::Api::loaded_executable_get_executable, "PJRT_LoadedExecutable_GetExecutable", args);
  state->program = std::make_shared<const XlaProgram>(
      own.plugin, owned(own.plugin, args.executable, &pjrt::ExecutableDestroyArgs::executable,
                        &pjrt::Api::executable_destroy, "PJRT_Executable_Destroy"));
  const XlaProgram& program = *state->program;
  if (program.num_replicas() != options.num_replicas || program.num_partitions() != options.num_partitions) {
    fail<FailedPrecondition>(own.plugin->speaker(), ": the program ", program.name(), " is for ",
                             program.num_replicas(), " replica(s) of ", program.num_partitions(),
                             " partition(s), but its options say ", options.num_replicas, " of ",
                             options.num_partitions);
  }
  state->slots = slots_of(own, loaded, devices, options.num_partitions);
  state->client = client;
  state->loaded = std::move(loaded);
  if (const XlaSignature* const signature = program.signature()) {
    for (const XlaShape& shape : signature->outputs) state->outputs.push_back(std::make_shared<const XlaShape>(shape));
  }
  return std::make_shared<const XlaExecutable>(std::move(state));
}

}  // namespace

XlaExecutablePtr XlaClient::compile(const std::string& text, const XlaCompileOptions& options) const {
  check_options(options);
  check_text(text, options);
  const std::vector<int> devices =
      options.devices.empty() ? default_devices(options.num_replicas, options.num_partitions) : options.devices;
  for (const int id : devices) device(id);
  const XlaClientPtr client = shared_from_this();
  const auto build = [client, encoded = encode_options(options, devices)](pjrt::Program& program) {
    pjrt::ClientCompileArgs args;
    args.client = client->state().client.get();
    args.program = &program;
    args.compile_options = encoded.data();
    args.compile_options_size = encoded.size();
    client->plugin().call(&pjrt::Api::client_compile, "PJRT_Client_Compile", args);
    return own_loaded(client->state().plugin, args.executable);
  };
  return make_executable(client, compile_text(plugin(), text, options, build), options, devices);
}

XlaExecutablePtr XlaClient::load(const std::string& bytes, const XlaCompileOptions& options) const {
  check_options(options);
  const std::vector<int> devices =
      options.devices.empty() ? default_devices(options.num_replicas, options.num_partitions) : options.devices;
  const XlaClientPtr client = shared_from_this();
  const auto build = [client, bytes] {
    pjrt::ExecutableDeserializeAndLoadArgs args;
    args.client = client->state().client.get();
    args.serialized_executable = bytes.data();
    args.serialized_executable_size = bytes.size();
    client->plugin().call(&pjrt::Api::executable_deserialize_and_load, "PJRT_Executable_DeserializeAndLoad", args);
    return own_loaded(client->state().plugin, args.loaded_executable);
  };
  return make_executable(
      client, within<LoadedPtr>(options.limit, "the plugin " + plugin().name() + " to load the program", build),
      options, devices);
}

XlaExecutable::XlaExecutable(std::unique_ptr<State> state) : state_(std::move(state)) {}
XlaExecutable::~XlaExecutable() = default;

const XlaProgram& XlaExecutable::program() const {
  return *state_->program;
}

const std::vector<XlaSlot>& XlaExecutable::slots() const {
  return state_->slots;
}

}  // namespace cohort
