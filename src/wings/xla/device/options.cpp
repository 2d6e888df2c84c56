// The options of a compilation as the protocol buffer that PJRT takes.
#include <charconv>
#include <set>

#include "base/fail.h"
#include "wings/xla/device/state.h"
#include "xla_messages.pb.h"

namespace cohort {

namespace {

namespace messages = xla_messages;

// XLA reads a flag by its type, so a number has to travel as one.
void set_flag(messages::FlagValue& value, const std::string& text) {
  const char* const end = text.data() + text.size();
  int64_t whole = 0;
  if (text == "true" || text == "false") {
    value.set_flag(text == "true");
  } else if (const auto read = std::from_chars(text.data(), end, whole); read.ec == std::errc() && read.ptr == end) {
    value.set_number(whole);
  } else {
    value.set_text(text);
  }
}

}  // namespace

void check_options(const XlaCompileOptions& options) {
  if (options.num_replicas < 1 || options.num_partitions < 1) {
    fail<InvalidArgument>("[xla] a program for ", options.num_replicas, " replica(s) of ", options.num_partitions,
                          " partition(s) is wanted, and 1 or more of both are possible");
  }
  const auto wanted = static_cast<std::size_t>(options.num_replicas) * static_cast<std::size_t>(options.num_partitions);
  if (!options.devices.empty() && options.devices.size() != wanted) {
    fail<InvalidArgument>("[xla] ", options.devices.size(), " devices are named for ", options.num_replicas,
                          " replica(s) of ", options.num_partitions, " partition(s), wanted ", wanted);
  }
  if (std::set(options.devices.begin(), options.devices.end()).size() != options.devices.size()) {
    fail<InvalidArgument>("[xla] one of the devices of a program is named twice: ",
                          to_text(std::vector<int64_t>(options.devices.begin(), options.devices.end())));
  }
}

std::string encode_options(const XlaCompileOptions& options, const std::vector<int>& devices) {
  messages::CompileOptions encoded;
  messages::BuildOptions& build = *encoded.mutable_executable_build_options();
  build.set_device_ordinal(-1);  // none
  build.set_num_replicas(options.num_replicas);
  build.set_num_partitions(options.num_partitions);
  build.set_use_spmd_partitioning(options.num_partitions > 1);
  build.set_use_shardy_partitioner(options.shardy && options.num_partitions > 1);
  messages::DeviceAssignment& assignment = *build.mutable_device_assignment();
  assignment.set_replica_count(options.num_replicas);
  assignment.set_computation_count(options.num_partitions);
  for (int partition = 0; partition < options.num_partitions; ++partition) {
    auto& ids = *assignment.add_computation_devices();
    for (int replica = 0; replica < options.num_replicas; ++replica) {
      ids.add_replica_device_ids(devices.at(static_cast<std::size_t>(replica) * options.num_partitions + partition));
    }
  }
  for (const auto& [name, value] : options.flags) {
    set_flag((*encoded.mutable_env_option_overrides())[name], value);
  }
  return encoded.SerializeAsString();
}

}  // namespace cohort
