// cohort run: runs a program of StableHLO, such as a model that `cohort export` has written, on tensors of a file.
#include "wings/xla/run.h"

#include <algorithm>
#include <iostream>
#include <memory>

#include "base/fail.h"
#include "base/regular_file.h"
#include "cohort/weights.h"
#include "wings/xla/xla_flags.h"

namespace cohort::cli {

namespace {

struct RunFlags {
  XlaFlags xla;
  std::filesystem::path mlir;
  std::filesystem::path inputs;
  std::filesystem::path outputs;
};

void check(const RunFlags& flags) {
  const auto require = [](const std::filesystem::path& path, const char* flag, const char* what) {
    if (path.empty()) fail<InvalidArgument>("[run] ", flag, " is missing: ", what);
  };
  require(flags.mlir, "--mlir", "a file with a module of StableHLO as text");
  require(flags.inputs, "--inputs", "a safetensors file with the inputs");
  require(flags.outputs, "--outputs", "the safetensors file that gets the outputs");
  if (!flags.xla.topology.empty()) {
    fail<InvalidArgument>("[run] --tpu_topology=", flags.xla.topology, " names devices that need not be here");
  }
}

// The declaration of the function "main" in the text of a module.
struct MainFunction {
  std::vector<std::string> inputs;   // names, as loc("x") behind an argument
  std::vector<std::string> outputs;  // names, as jax.result_info = "y" behind a result
};

// Returns the strings that stand behind `mark`, one for each "tensor<" in the text; "<otherwise>_0" and so on for those
// that have none.
std::vector<std::string> names_in(std::string_view text, std::string_view mark, const std::string& otherwise) {
  constexpr std::string_view kType = "tensor<";
  std::vector<std::string> names;
  for (std::size_t at = text.find(kType); at != std::string_view::npos;) {
    const std::size_t next = text.find(kType, at + 1);
    const std::string_view own = text.substr(at, next == std::string_view::npos ? next : next - at);
    const std::size_t begin = own.find(mark);
    const std::size_t end = begin == std::string_view::npos ? begin : own.find('"', begin + mark.size());
    names.push_back(end == std::string_view::npos
                        ? otherwise + "_" + std::to_string(names.size())
                        : std::string(own.substr(begin + mark.size(), end - begin - mark.size())));
    at = next;
  }
  return names;
}

MainFunction main_of(const std::string& text, const std::filesystem::path& file) {
  const std::size_t begin = text.find("@main(");
  const std::size_t results = begin == std::string::npos ? begin : text.find(") -> ", begin);
  const std::size_t end = results == std::string::npos ? results : text.find('\n', results);
  if (end == std::string::npos) {
    fail<InvalidArgument>("[run] --mlir=", file.string(),
                          ": has no function @main with results, wanted StableHLO as text");
  }
  const std::string_view all(text);
  return {.inputs = names_in(all.substr(begin, results - begin), "loc(\"", "input"),
          .outputs = names_in(all.substr(results, end - results), "jax.result_info = \"", "output")};
}

int run_program(const RunFlags& flags) {
  check(flags);
  const auto text = read_regular_file(flags.mlir, "run");
  if (!text) fail<NotFound>("[run] --mlir=", flags.mlir.string(), ": there is no such file");
  const MainFunction main = main_of(*text, flags.mlir);
  const NamedTensors given = load_weights(flags.inputs).tensors;
  const XlaClientPtr client =
      XlaClient::create(load_plugin(flags.xla), {.options = parse_xla_options(flags.xla.options)});
  const int device = client->local_devices().front();
  std::vector<XlaBuffer> arguments;
  for (const std::string& name : main.inputs) {
    const auto found = std::find_if(given.begin(), given.end(), [&](const auto& each) { return each.first == name; });
    if (found == given.end()) {
      fail<InvalidArgument>("[run] --inputs=", flags.inputs.string(), ": has no tensor \"", name,
                            "\", which the program takes");
    }
    arguments.push_back(client->to_device(found->second, device));
  }
  if (given.size() != arguments.size()) {
    fail<InvalidArgument>("[run] --inputs=", flags.inputs.string(), ": has ", given.size(),
                          " tensors, wanted the program's ", arguments.size());
  }
  const XlaExecutablePtr program = client->compile(*text, {.devices = {device}});
  const XlaLaunch launch = program->launch({arguments});
  if (launch.outputs.front().size() != main.outputs.size()) {
    fail<InvalidArgument>("[run] --mlir=", flags.mlir.string(), ": the program has ", launch.outputs.front().size(),
                          " outputs, and its text declares ", main.outputs.size());
  }
  NamedTensors outputs;
  for (const XlaBuffer& each : launch.outputs.front()) {
    outputs.emplace_back(main.outputs.at(outputs.size()), each.to_host());
  }
  save_weights(flags.outputs, outputs);
  for (const auto& [name, output] : outputs) {
    std::cout << "output      " << name << ", " << output.scalar_type() << " " << output.sizes() << "\n";
  }
  return 0;
}

}  // namespace

Command add_run(CLI::App& app) {
  const auto flags = std::make_shared<RunFlags>();
  app.add_option("--mlir", flags->mlir, "the program: a file with a module of StableHLO as text");
  app.add_option("--inputs", flags->inputs, "a safetensors file with the inputs, by their names in the program");
  app.add_option("--outputs", flags->outputs, "the safetensors file that gets the outputs");
  add_xla_flags(app, flags->xla);
  return [flags] { return run_program(*flags); };
}

}  // namespace cohort::cli
