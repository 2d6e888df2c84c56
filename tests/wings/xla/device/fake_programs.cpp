// Programs; see fake_plugin.h.
#include <cstring>

#include "tests/wings/xla/device/fake_objects.h"

namespace cohort::testing {

using namespace pjrt;  // NOLINT: the plugin is made of its names

namespace {

void note_program(const Program* program, const char* options, std::size_t size) {
  fake().compiled = std::string(program->code, program->code_size);
  fake().options = std::string(options, size);
}
LoadedExecutable* load(const Client* client) {
  auto* loaded = new LoadedExecutable;
  for (int i = 0; i < fake().replicas * fake().partitions; ++i) {
    if (client->list.at(i)->local) loaded->devices.push_back(client->list.at(i));
  }
  ++fake().executables;
  return loaded;
}
Error* client_compile(ClientCompileArgs* args) {
  BEGIN("Client_Compile");
  note_program(args->program, args->compile_options, args->compile_options_size);
  args->executable = load(args->client);
  return nullptr;
}
Error* compile_ahead(CompileArgs* args) {
  BEGIN("Compile");
  note_program(args->program, args->compile_options, args->compile_options_size);
  args->executable = new Executable;
  return nullptr;
}
Error* deserialize(ExecutableDeserializeAndLoadArgs* args) {
  BEGIN("Executable_DeserializeAndLoad");
  args->loaded_executable = load(args->client);
  return nullptr;
}
Error* loaded_destroy(LoadedExecutableDestroyArgs* args) {
  BEGIN("LoadedExecutable_Destroy");
  --fake().executables;
  delete args->executable;
  return nullptr;
}
Error* get_executable(LoadedExecutableGetExecutableArgs* args) {
  BEGIN("LoadedExecutable_GetExecutable");
  args->executable = new Executable;
  return nullptr;
}
Error* addressable_devices(LoadedExecutableAddressableDevicesArgs* args) {
  BEGIN("LoadedExecutable_AddressableDevices");
  args->addressable_devices = args->executable->devices.data();
  args->num_addressable_devices = args->executable->devices.size();
  return nullptr;
}
Error* executable_destroy(ExecutableDestroyArgs* args) {
  BEGIN("Executable_Destroy");
  delete args->executable;
  return nullptr;
}
Error* executable_name(ExecutableNameArgs* args) {
  args->executable_name = args->executable->name.data();
  args->executable_name_size = args->executable->name.size();
  return nullptr;
}
Error* num_replicas(ExecutableNumReplicasArgs* args) {
  args->num_replicas = static_cast<std::size_t>(fake().replicas);
  return nullptr;
}
Error* num_partitions(ExecutableNumPartitionsArgs* args) {
  args->num_partitions = static_cast<std::size_t>(fake().partitions);
  return nullptr;
}
Error* num_outputs(ExecutableNumOutputsArgs* args) {
  args->num_outputs = fake().outputs;
  return nullptr;
}
Error* optimized_program(ExecutableOptimizedProgramArgs* args) {
  BEGIN("Executable_OptimizedProgram");
  args->program->code_size = fake().optimized.size();
  if (args->program->code != nullptr)
    std::memcpy(args->program->code, fake().optimized.data(), fake().optimized.size());
  return nullptr;
}
Error* serialize(ExecutableSerializeArgs* args) {
  BEGIN("Executable_Serialize");
  args->serialized_executable = new SerializedExecutable{"serialized fake"};
  args->serialized_bytes = args->serialized_executable->bytes.data();
  args->serialized_bytes_size = args->serialized_executable->bytes.size();
  args->serialized_executable_deleter = [](SerializedExecutable* bytes) { delete bytes; };
  return nullptr;
}
Error* memory_stats(ExecutableGetCompiledMemoryStatsArgs* args) {
  BEGIN("Executable_GetCompiledMemoryStats");
  const std::size_t peak = fake().compiled.find("peak ");
  if (peak == std::string::npos) return new Error{kUnimplemented, "not told"};
  args->peak_memory_in_bytes = std::stoll(fake().compiled.substr(peak + 5));
  return nullptr;
}
Error* execute(LoadedExecutableExecuteArgs* args) {
  BEGIN("LoadedExecutable_Execute");
  for (std::size_t device = 0; device < args->num_devices; ++device) {
    for (std::size_t i = 0; i < fake().outputs; ++i) {
      args->output_lists[device][i] = new Buffer(*args->argument_lists[device][i]);
      ++fake().buffers;
    }
    for (const std::size_t i : fake().donated) args->argument_lists[device][i]->deleted = true;
    args->device_complete_events[device] = new_event();
  }
  return nullptr;
}

}  // namespace

void fill_programs(Api& api) {
  api.executable_deserialize_and_load = deserialize;
  api.loaded_executable_destroy = loaded_destroy;
  api.loaded_executable_get_executable = get_executable;
  api.loaded_executable_addressable_devices = addressable_devices;
  api.loaded_executable_execute = execute;
  api.executable_destroy = executable_destroy;
  api.executable_name = executable_name;
  api.executable_num_replicas = num_replicas;
  api.executable_num_partitions = num_partitions;
  api.executable_num_outputs = num_outputs;
  api.executable_optimized_program = optimized_program;
  api.executable_serialize = serialize;
  api.executable_get_compiled_memory_stats = memory_stats;
  api.client_compile = client_compile;
  api.compile = compile_ahead;
}

}  // namespace cohort::testing
