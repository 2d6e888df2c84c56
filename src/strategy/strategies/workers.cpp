#include "strategy/strategies/workers.h"

#include <c10/util/StringUtil.h>

#include <algorithm>

#include "base/fail.h"
#include "base/number_in.h"
#include "device/host_random.h"

namespace cohort {

std::vector<std::string> devices_in(const std::string& strategy, const DeviceMesh& mesh,
                                    const std::optional<TaskId>& task) {
  std::vector<std::string> names;
  for (const DeviceSpec& device : mesh.devices_of(task ? task->type : "localhost", task ? task->index : 0)) {
    names.push_back(device.short_form());
  }
  if (!names.empty()) return names;
  fail<InvalidArgument>("[strategy] ", strategy, ": the mesh (", mesh.to_string(), ") has no device of ",
                        task ? task->to_string() : "this process");
}

std::string agreed_text(const DeviceMesh& mesh) {
  std::vector<std::string> devices;
  for (const DeviceSpec& device : mesh.devices()) devices.push_back(device.to_string());
  return c10::str(mesh.to_string(), " of ", c10::Join(", ", devices));
}

std::string agreed_text(const ExchangeOptions& exchange) {
  return c10::str(exchange.num_packs, " packs of ", exchange.bytes_per_pack, " bytes, compression ",
                  compression_of(exchange));
}

std::string agreed_text(const ShardingOptions& sharding) {
  return c10::str("stage ", sharding.stage, " along ", sharding.axis,
                  sharding.reshard_after_forward ? "" : ", kept after forward", ", units of ", sharding.min_unit_bytes,
                  " bytes", sharding.offload_states ? ", offloaded" : "");
}

std::string agreed_text(const LayoutMap& layout) {
  std::string text;
  for (const auto& [pattern, axes] : layout.entries()) {
    text += c10::str(text.empty() ? "" : ", ", pattern, " {", c10::Join(", ", axes), "}");
  }
  return text;
}

std::string compression_of(const ExchangeOptions& exchange) {
  const PowerSgdOptions& power_sgd = exchange.power_sgd;
  if (power_sgd == PowerSgdOptions()) return exchange.gradient_compression;
  return c10::str(exchange.gradient_compression, ", rank ", power_sgd.matrix_approximation_rank, " after ",
                  power_sgd.start_power_sgd_iter, " updates, rate ", power_sgd.min_compression_rate,
                  power_sgd.use_error_feedback ? "" : ", no error feedback",
                  power_sgd.warm_start ? "" : ", no warm start");
}

void join_workers(StrategyPlan& plan, const WorkerGroupOptions& options) {
  // Whoever waits for the replica that speaks to the other workers waits longer than that one does.
  plan.exchange.timeout =
      std::max(plan.exchange.timeout,
               options.communication.timeout + 2 * options.membership.heartbeat_timeout + std::chrono::seconds(30));
  const auto workers = std::make_shared<JoinedWorkers>(options);
  plan.topology = Topology::batch(workers->devices());
  plan.workers = workers;
}

void take_seed_of_chief(StrategyCore& core) {
  const std::string seed = core.text_from_chief(std::to_string(host_generator().current_seed()));
  core.set_seed(number_in<uint64_t>(seed, c10::str("[strategy] ", core.plan().name, ": the chief's seed")));
}

void take_mesh(StrategyPlan& plan, const DeviceMesh& mesh) {
  const Topology& own = mesh.topology();
  const Topology& workers = plan.topology;
  for (int r = 0; r < std::max(own.size(), workers.size()); ++r) {
    const bool both = r < own.size() && r < workers.size();
    if (both && own.place(r) == workers.place(r)) continue;
    const Topology& longer = r < own.size() ? own : workers;
    fail<InvalidArgument>("[strategy] ", plan.name, ": the mesh (", mesh.to_string(), ") and the workers (",
                          workers.to_string(), ") differ from ", longer.place(r).device.to_string(), " on");
  }
  plan.topology = own;
}

}  // namespace cohort
