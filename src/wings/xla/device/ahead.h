// Compiling ahead for devices that are not here, and what the result tells.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "wings/xla/device/client.h"
#include "wings/xla/device/topology.h"

namespace cohort {

// The facts that are known of a compiled program.
struct XlaReport {
  std::string name;
  int num_replicas = 1;
  int num_partitions = 1;
  double compile_seconds = 0;
  XlaCost cost;
  std::optional<XlaProgramMemory> memory;
  std::vector<XlaCollective> collectives;
  std::map<std::string, int64_t> operations;  // how often each kind is in the optimised program
};

// Returns what a program tells. What its plugin does not tell is absent.
XlaReport report_of(const XlaProgram& program);
// Writes the report as JSON, and reads it. DataLoss: the text is no report.
std::string to_json(const XlaReport& report);
XlaReport read_report(const std::string& json);

// A program that was compiled ahead.
struct XlaAhead {
  XlaReport report;
  std::string bytes;  // XlaProgram::serialize(); empty if the plugin cannot
  bool kept = false;  // whether it was there from an earlier run
};

// Compiles a text for a topology, or finds what an earlier run kept of it in `directory`, as XlaCompilerOptions says;
// an empty one keeps nothing.
XlaAhead compile_ahead(const XlaTopology& topology, const std::string& text, const XlaCompileOptions& options,
                       const std::filesystem::path& directory = {});

}  // namespace cohort
