// cohort compile: compiles a program for devices that need not be here, and prints what it takes of one of them.
#include <c10/util/accumulate.h>
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>

#include "base/atomic_file.h"
#include "base/fail.h"
#include "base/regular_file.h"
#include "bytes_text.h"
#include "commands.h"
#include "models/command/experiment_flags.h"
#include "wings/xla/compile.h"
#include "wings/xla/device/ahead.h"
#include "wings/xla/models/record_step.h"
#include "wings/xla/xla_flags.h"

namespace cohort::cli {

namespace {

struct CompileFlags {
  XlaFlags xla;
  std::filesystem::path mlir;
  ExperimentFlags experiment;
  std::optional<int> num_replicas;
  std::optional<int> num_partitions;
  std::optional<std::string> matmul_precision;
  int64_t steps_per_loop = 1;
  std::filesystem::path save;
  std::filesystem::path save_mlir;
  std::filesystem::path cache;
};

std::string read_text(const std::filesystem::path& file) {
  const auto text = read_file_or_pipe(file, "compile");
  if (!text) fail<NotFound>("[compile] --mlir=", file.string(), " cannot be opened");
  return *text;
}

void write_whole(const std::filesystem::path& path, const std::string& bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

std::string quantity(const std::optional<double>& value) {
  return value ? fmt::format("{:.3g}", *value) : "unknown";
}

// Prints the memory of one device against what it has. Returns whether it fits; what is not told does.
bool print_memory(const XlaReport& report, const XlaDevice& device) {
  if (!report.memory) {
    std::cout << "memory      not told\n";
    return true;
  }
  const XlaProgramMemory& memory = *report.memory;
  const bool fits = !device.memory_bytes || memory.peak <= *device.memory_bytes;
  std::cout << "memory      " << bytes_text(memory.peak);
  if (device.memory_bytes) {
    std::cout << " of " << bytes_text(*device.memory_bytes) << (fits ? ", it fits" : ", it DOES NOT FIT");
  }
  std::cout << "; arguments " << bytes_text(memory.arguments) << ", outputs " << bytes_text(memory.outputs)
            << ", of which in the arguments' place " << bytes_text(memory.aliased) << ", temporary "
            << bytes_text(memory.temporary) << ", code " << bytes_text(memory.code) << "\n";
  return fits;
}

void print_work(const XlaReport& report) {
  std::cout << "work        " << quantity(report.cost.flops) << " floating-point operations, "
            << quantity(report.cost.bytes_accessed) << " bytes read and written";
  if (report.cost.seconds) std::cout << ", XLA's estimate " << fmt::format("{:.3g} s", *report.cost.seconds);
  std::cout << "\noperations ";
  for (const char* const kind : {"fusion", "convolution", "dot", "custom-call", "while"}) {
    const auto found = report.operations.find(kind);
    if (found != report.operations.end()) std::cout << " " << kind << " " << found->second << ",";
  }
  int64_t all = 0;
  for (const auto& [kind, count] : report.operations) all += count;
  std::cout << " " << all << " of all kinds\n";
  for (const XlaCollective& each : report.collectives) {
    std::cout << "collective  " << each.name << " " << each.count << ", " << bytes_text(each.bytes)
              << " come to each device\n";
  }
}

void check(const CompileFlags& flags) {
  const bool has_experiment = !flags.experiment.name.empty();
  if (flags.mlir.empty() != has_experiment) {
    fail<InvalidArgument>("[compile] ",
                          has_experiment ? "both --mlir and --experiment are given" : "nothing to compile",
                          ", wanted one of --experiment=NAME and --mlir=FILE of StableHLO text");
  }
  if (!has_experiment && flags.experiment.any()) {
    fail<InvalidArgument>("[compile] the flags of an experiment's configuration are given, but no --experiment");
  }
  if (!has_experiment && flags.matmul_precision) {
    fail<InvalidArgument>("[compile] --matmul_precision=", *flags.matmul_precision,
                          " is given, but the text of --mlir says how it multiplies");
  }
  if (!has_experiment && flags.steps_per_loop != 1) {
    fail<InvalidArgument>("[compile] --steps_per_loop=", flags.steps_per_loop,
                          " is given, but the text of --mlir says what runs how often");
  }
  if (flags.xla.topology.empty()) {
    fail<InvalidArgument>("[compile] --tpu_topology is missing, wanted a name such as v5e:2x2");
  }
}

// A file may be that of the whole training; what a flag sets has its effect on the step, or is an error.
void require_read(const Config& config) {
  std::string list;
  for (const Config::Change& change : config.unread()) {
    if (change.origin != "--params_override" && change.origin != "--gin_param") continue;
    list += c10::str("\n  ", change.path, " is ", change.value, " (", change.origin, ")");
  }
  if (!list.empty()) fail<InvalidArgument>("[compile] the training step alone has no use for what was set:", list);
}

// The program and how often it runs.
struct Wanted {
  std::string text;
  int num_replicas = 1;
  int num_partitions = 1;
};

// Returns the training step of the experiment, which all devices of the topology run, or as many as a flag says.
Wanted step_of(const CompileFlags& flags, int num_devices) {
  const Experiment experiment = find_experiment(flags.experiment.name);
  ExperimentConfig made = experiment.make();
  Config config([&](ConfigFields& fields) { made.describe(fields); });
  flags.experiment.apply_files(config);
  if (flags.matmul_precision) config.set("runtime.matmul_precision", *flags.matmul_precision, "--matmul_precision");
  flags.experiment.apply_overrides(config, *made.task);
  config.lock();
  const auto num_cores = static_cast<int>(c10::multiply_integers(made.task->input_partition_dims(/*training=*/true)));
  if (flags.num_partitions.value_or(num_cores) != num_cores) {
    fail<InvalidArgument>("[compile] --num_partitions=", *flags.num_partitions, ", but the step of the experiment is ",
                          "divided in ", num_cores, " by task.train_input_partition_dims; leave the flag out");
  }
  const int num_replicas = flags.num_replicas.value_or(std::max(1, num_devices / num_cores));
  const RecordedStep step = record_step(made, num_replicas, flags.steps_per_loop);
  require_read(config);
  std::cout << "experiment  " << experiment.name << ", a global batch of " << step.global_batch << ", "
            << step.global_batch / num_replicas << " a replica"
            << (flags.steps_per_loop > 1 ? c10::str(", ", flags.steps_per_loop, " steps in a loop") : "") << "\n";
  return {.text = step.text, .num_replicas = num_replicas, .num_partitions = step.num_cores};
}

int run_compile(const CompileFlags& flags) {
  check(flags);
  const bool reads = !flags.mlir.empty();
  Wanted wanted;
  if (reads) {
    wanted = {.text = read_text(flags.mlir),
              .num_replicas = flags.num_replicas.value_or(1),
              .num_partitions = flags.num_partitions.value_or(1)};
  }
  const XlaPluginPtr plugin = load_plugin(flags.xla);
  const XlaTopologyPtr topology =
      XlaTopology::create(plugin, flags.xla.topology, {.options = parse_xla_options(flags.xla.options)});
  if (!reads) wanted = step_of(flags, static_cast<int>(topology->devices().size()));
  if (!flags.save_mlir.empty()) write_whole(flags.save_mlir, wanted.text);
  const XlaCompileOptions options{.num_replicas = wanted.num_replicas, .num_partitions = wanted.num_partitions};
  const XlaAhead ahead = compile_ahead(*topology, wanted.text, options, flags.cache);
  const XlaReport& report = ahead.report;
  const XlaDevice& device = topology->devices().front();
  std::cout << "program     " << report.name << ": " << report.num_replicas << " replica(s) of "
            << report.num_partitions << " partition(s); "
            << (ahead.kept ? std::string("kept from an earlier compilation of ") : std::string("compiled in "))
            << fmt::format("{:.1f} s\n", report.compile_seconds) << "devices     " << topology->name() << ", "
            << topology->devices().size() << " of " << device.kind << "; the figures are those of one\n";
  const bool fits = print_memory(report, device);
  print_work(report);
  if (!flags.save.empty()) {
    if (ahead.bytes.empty()) plugin->lacks("PJRT_Executable_Serialize, which --save needs");
    write_whole(flags.save, ahead.bytes);
    std::cout << "saved       " << flags.save.string() << ", " << bytes_text(static_cast<int64_t>(ahead.bytes.size()))
              << "\n";
  }
  return fits ? 0 : 1;
}

}  // namespace

Command add_compile(CLI::App& app) {
  const auto flags = std::make_shared<CompileFlags>();
  app.add_option("--experiment", flags->experiment.name,
                 "the program: a training step of this experiment, for which no data are needed");
  flags->experiment.add_to(app);
  app.add_option("--mlir", flags->mlir, "the program: a file with a module of StableHLO as text");
  add_xla_flags(app, flags->xla);
  app.add_option("--num_replicas", flags->num_replicas,
                 "the copies of the program that run together; not given: 1 of --mlir, one on each device of an "
                 "experiment");
  app.add_option(
      "--num_partitions", flags->num_partitions,
      "the devices of a replica, among which XLA divides the program; not given: 1 of --mlir, of an experiment "
      "as many as task.train_input_partition_dims has parts");
  app.add_option(
      "--matmul_precision", flags->matmul_precision,
      "how the step of an experiment multiplies float32: default (not given) is the device's way, on TPUs one "
      "pass in bfloat16; high, on TPUs three; highest, float32");
  app.add_option("--steps_per_loop", flags->steps_per_loop,
                 "how many training steps of the experiment one launch has room for: more than 1 is a loop on the "
                 "devices, over a stacked batch");
  app.add_option("--save", flags->save, "the file that gets the compiled program");
  app.add_option("--save_mlir", flags->save_mlir, "the file that gets the program as StableHLO text");
  app.add_option("--compilation_cache", flags->cache,
                 "a folder that keeps compiled programs, so that the same one is there at once the next time");
  return [flags] { return run_compile(*flags); };
}

}  // namespace cohort::cli
