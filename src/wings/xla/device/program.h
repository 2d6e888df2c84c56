// The facts that are known of a compiled program, whether its devices are here or not.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "wings/xla/device/plugin.h"
#include "wings/xla/device/types.h"

namespace cohort {

// The arguments and results of one device: the parts of the arrays that it has.
struct XlaSignature {
  std::vector<XlaShape> parameters;
  std::vector<XlaShape> outputs;
  std::vector<bool> donated;  // for each parameter, whether its memory may become an output's
};

// XLA's estimate of one device's work in one run. What the plugin does not tell, or tells as a negative number, is
// absent.
struct XlaCost {
  std::optional<double> flops;
  std::optional<double> bytes_accessed;
  std::optional<double> transcendentals;
  std::optional<double> seconds;
};

// The memory of one device that one run takes, in bytes.
struct XlaProgramMemory {
  int64_t code = 0;
  int64_t arguments = 0;
  int64_t outputs = 0;
  int64_t aliased = 0;  // the part of the arguments that becomes outputs
  int64_t temporary = 0;
  int64_t peak = 0;  // the most at one time, as the plugin says or as the sum of the parts
};

// A kind of collective in the optimised program.
struct XlaCollective {
  std::string name;   // "all-reduce", "collective-permute", ...
  int64_t count = 0;  // the places in the program; one in a loop counts once
  int64_t bytes = 0;  // what one device gets, over all these places
};

// A compiled program. Immutable and thread-safe.
class XlaProgram {
 public:
  XlaProgram(XlaPluginPtr plugin, std::shared_ptr<pjrt::Executable> executable);

  // Returns the name of the module.
  const std::string& name() const { return name_; }
  int num_replicas() const { return num_replicas_; }
  int num_partitions() const { return num_partitions_; }
  int num_outputs() const { return num_outputs_; }
  // Returns what a device takes and gives, or null if the plugin does not tell its optimised program.
  const XlaSignature* signature() const { return signature_ ? &*signature_ : nullptr; }

  // Returns XLA's estimate of the work. Nothing is known of a plugin without this function.
  XlaCost cost() const;
  // Returns the memory, or nothing if the plugin does not tell.
  std::optional<XlaProgramMemory> memory() const;
  // Returns the optimised program: one line for each operation, those of called computations too. Unimplemented: the
  // plugin does not tell it; the next two likewise.
  std::string hlo_text() const;
  // Returns the collectives of the optimised program, by name.
  std::vector<XlaCollective> collectives() const;
  // Returns how often each kind of operation is in the optimised program: "fusion", "convolution".
  std::map<std::string, int64_t> operations() const;
  // Returns the program as bytes for XlaClient::load(), with a plugin of the same version and devices of the same kind.
  std::string serialize() const;

 private:
  std::string optimized() const;

  XlaPluginPtr plugin_;
  std::shared_ptr<pjrt::Executable> executable_;
  std::string name_;
  int num_replicas_ = 1;
  int num_partitions_ = 1;
  int num_outputs_ = 0;
  std::optional<XlaSignature> signature_;
};

}  // namespace cohort
