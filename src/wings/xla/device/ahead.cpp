#include "wings/xla/device/ahead.h"

#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "base/log.h"
#include "wings/xla/device/compiler.h"

namespace cohort {

namespace {

using Json = nlohmann::ordered_json;

void set(Json& json, const char* name, const std::optional<double>& value) {
  if (value) json[name] = *value;
}

std::optional<double> get(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found == json.end() ? std::nullopt : std::optional<double>(found->get<double>());
}

std::string describe_topology(const XlaTopology& topology) {
  std::string text = c10::str("ahead|", topology.name(), "|", topology.platform(), "|", topology.platform_version(),
                              "|", topology.plugin().version(), "|");
  for (const auto& [name, value] : topology.plugin().attributes()) text += name + "=" + to_text(value) + "|";
  return text;
}

// Returns what the plugin can serialize of a program, or nothing.
std::string bytes_of(const XlaProgram& program) {
  try {
    return program.serialize();
  } catch (const Unimplemented& error) {
    log().warn("{}", error.what());
    return "";
  }
}

XlaAhead read_ahead(const std::filesystem::path& file) {
  const std::string whole = read_program_file(file);
  const std::size_t end = whole.find('\n');
  if (end == std::string::npos) fail<DataLoss>("[xla] ", file, " has no report of its program");
  return {.report = read_report(whole.substr(0, end)), .bytes = whole.substr(end + 1), .kept = true};
}

}  // namespace

XlaReport report_of(const XlaProgram& program) {
  XlaReport report{.name = program.name(),
                   .num_replicas = program.num_replicas(),
                   .num_partitions = program.num_partitions(),
                   .cost = program.cost(),
                   .memory = program.memory()};
  if (program.signature() != nullptr) {
    report.collectives = program.collectives();
    report.operations = program.operations();
  }
  return report;
}

std::string to_json(const XlaReport& report) {
  Json json{{"name", report.name},
            {"num_replicas", report.num_replicas},
            {"num_partitions", report.num_partitions},
            {"compile_seconds", report.compile_seconds},
            {"cost", Json::object()},
            {"collectives", Json::array()},
            {"operations", report.operations}};
  set(json["cost"], "flops", report.cost.flops);
  set(json["cost"], "bytes_accessed", report.cost.bytes_accessed);
  set(json["cost"], "transcendentals", report.cost.transcendentals);
  set(json["cost"], "seconds", report.cost.seconds);
  if (const auto& memory = report.memory) {
    json["memory"] = {{"code", memory->code},       {"arguments", memory->arguments}, {"outputs", memory->outputs},
                      {"aliased", memory->aliased}, {"temporary", memory->temporary}, {"peak", memory->peak}};
  }
  for (const XlaCollective& each : report.collectives) {
    json["collectives"].push_back({{"name", each.name}, {"count", each.count}, {"bytes", each.bytes}});
  }
  return json.dump();
}

XlaReport read_report(const std::string& json) {
  try {
    const Json read = Json::parse(json);
    XlaReport report{.name = read.at("name"),
                     .num_replicas = read.at("num_replicas"),
                     .num_partitions = read.at("num_partitions"),
                     .compile_seconds = read.at("compile_seconds"),
                     .operations = read.at("operations").get<std::map<std::string, int64_t>>()};
    const Json& cost = read.at("cost");
    report.cost = {.flops = get(cost, "flops"),
                   .bytes_accessed = get(cost, "bytes_accessed"),
                   .transcendentals = get(cost, "transcendentals"),
                   .seconds = get(cost, "seconds")};
    if (read.contains("memory")) {
      const Json& memory = read["memory"];
      report.memory = {.code = memory.at("code"),
                       .arguments = memory.at("arguments"),
                       .outputs = memory.at("outputs"),
                       .aliased = memory.at("aliased"),
                       .temporary = memory.at("temporary"),
                       .peak = memory.at("peak")};
    }
    for (const Json& each : read.at("collectives")) {
      report.collectives.push_back({.name = each.at("name"), .count = each.at("count"), .bytes = each.at("bytes")});
    }
    return report;
  } catch (const nlohmann::json::exception& error) {
    fail<DataLoss>("[xla] the report of a program cannot be read: ", error.what());
  }
}

XlaAhead compile_ahead(const XlaTopology& topology, const std::string& text, const XlaCompileOptions& options,
                       const std::filesystem::path& directory) {
  std::filesystem::path file;
  if (!directory.empty()) {
    prepare_program_folder(directory);
    file = directory / (program_key(text, options, describe_topology(topology)) + ".xla");
    try {
      return read_ahead(file);
    } catch (const NotFound&) {
    } catch (const DataLoss& error) {
      log().warn("[xla] a kept program is compiled anew: {}", error.what());
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  const std::shared_ptr<const XlaProgram> program = topology.compile(text, options);
  XlaAhead ahead{.report = report_of(*program), .bytes = bytes_of(*program)};
  ahead.report.compile_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!file.empty()) write_program_file(file, to_json(ahead.report) + "\n" + ahead.bytes);
  return ahead;
}

}  // namespace cohort
