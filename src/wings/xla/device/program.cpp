#include "wings/xla/device/program.h"

#include "base/fail.h"
#include "base/log.h"
#include "wings/xla/device/hlo.h"

namespace cohort {

namespace {

// Returns what a function counts of an executable.
template <typename Args>
int count_of(const XlaPlugin& plugin, pjrt::Executable* executable, pjrt::Function<Args> pjrt::Api::*function,
             const char* operation, std::size_t Args::*count) {
  Args args;
  args.executable = executable;
  plugin.call(function, operation, args);
  return static_cast<int>(args.*count);
}

std::optional<double> property(const XlaOptions& properties, const char* name) {
  const auto found = properties.find(name);
  if (found == properties.end()) return std::nullopt;
  const auto* const value = std::get_if<float>(&found->second);
  if (value == nullptr || !(*value >= 0)) return std::nullopt;
  return *value;
}

}  // namespace

XlaProgram::XlaProgram(XlaPluginPtr plugin, std::shared_ptr<pjrt::Executable> executable)
    : plugin_(std::move(plugin)), executable_(std::move(executable)) {
  pjrt::ExecutableNameArgs name;
  name.executable = executable_.get();
  plugin_->call(&pjrt::Api::executable_name, "PJRT_Executable_Name", name);
  name_ = std::string(name.executable_name, name.executable_name_size);
  num_replicas_ = count_of(*plugin_, executable_.get(), &pjrt::Api::executable_num_replicas,
                           "PJRT_Executable_NumReplicas", &pjrt::ExecutableNumReplicasArgs::num_replicas);
  num_partitions_ = count_of(*plugin_, executable_.get(), &pjrt::Api::executable_num_partitions,
                             "PJRT_Executable_NumPartitions", &pjrt::ExecutableNumPartitionsArgs::num_partitions);
  num_outputs_ = count_of(*plugin_, executable_.get(), &pjrt::Api::executable_num_outputs, "PJRT_Executable_NumOutputs",
                          &pjrt::ExecutableNumOutputsArgs::num_outputs);
  try {
    signature_ = read_signature(optimized());
  } catch (const Unimplemented&) {
    warn_once(plugin_->speaker() +
              " does not tell its optimised programs: arguments cannot be checked before a launch");
  }
  if (signature_ && static_cast<int>(signature_->outputs.size()) != num_outputs_) {
    fail<Internal>(plugin_->speaker(), ": the program ", name_, " has ", num_outputs_, " outputs, but ",
                   signature_->outputs.size(), " in its optimised form");
  }
}

XlaCost XlaProgram::cost() const {
  pjrt::ExecutableGetCostAnalysisArgs args;
  args.executable = executable_.get();
  try {
    plugin_->call(&pjrt::Api::executable_get_cost_analysis, "PJRT_Executable_GetCostAnalysis", args);
  } catch (const Unimplemented&) {
    return {};
  }
  const XlaOptions properties = read_values(args.properties, args.num_properties);
  return {.flops = property(properties, "flops"),
          .bytes_accessed = property(properties, "bytes accessed"),
          .transcendentals = property(properties, "transcendentals"),
          .seconds = property(properties, "optimal_seconds")};
}

std::optional<XlaProgramMemory> XlaProgram::memory() const {
  pjrt::ExecutableGetCompiledMemoryStatsArgs args;
  args.executable = executable_.get();
  try {
    plugin_->call(&pjrt::Api::executable_get_compiled_memory_stats, "PJRT_Executable_GetCompiledMemoryStats", args);
  } catch (const Unimplemented&) {
    return std::nullopt;
  }
  XlaProgramMemory memory{.code = args.generated_code_size_in_bytes,
                          .arguments = args.argument_size_in_bytes,
                          .outputs = args.output_size_in_bytes,
                          .aliased = args.alias_size_in_bytes,
                          .temporary = args.temp_size_in_bytes,
                          .peak = args.peak_memory_in_bytes};
  if (memory.peak == 0) memory.peak = memory.arguments + memory.outputs - memory.aliased + memory.temporary;
  return memory;
}

std::string XlaProgram::hlo_text() const {
  return print_hlo(optimized());
}

std::vector<XlaCollective> XlaProgram::collectives() const {
  return list_collectives(optimized());
}

std::map<std::string, int64_t> XlaProgram::operations() const {
  return count_operations(optimized());
}

std::string XlaProgram::serialize() const {
  pjrt::ExecutableSerializeArgs args;
  args.executable = executable_.get();
  plugin_->call(&pjrt::Api::executable_serialize, "PJRT_Executable_Serialize", args);
  const std::shared_ptr<pjrt::SerializedExecutable> own(args.serialized_executable, args.serialized_executable_deleter);
  return {args.serialized_bytes, args.serialized_bytes_size};
}

// The first call tells the size, the second one fills the memory.
std::string XlaProgram::optimized() const {
  pjrt::Program program;
  pjrt::ExecutableOptimizedProgramArgs args;
  args.executable = executable_.get();
  args.program = &program;
  plugin_->call(&pjrt::Api::executable_optimized_program, "PJRT_Executable_OptimizedProgram", args);
  std::string code(program.code_size, '\0');
  program.code = code.data();
  plugin_->call(&pjrt::Api::executable_optimized_program, "PJRT_Executable_OptimizedProgram", args);
  return code;
}

}  // namespace cohort
