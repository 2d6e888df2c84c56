#include "wings/monitoring/models/metrics_port.h"

#include <iostream>
#include <memory>
#include <optional>

#include "base/fail.h"
#include "base/number_in.h"
#include "cluster/local_place.h"
#include "cohort/train/metrics_server.h"

namespace cohort {

namespace {

// Returns what `[ADDRESS:]PORT` says for a worker with this rank on its machine.
MetricsServerOptions options_of(const std::string& flag, int local_rank) {
  MetricsServerOptions options;
  const std::size_t colon = flag.rfind(':');
  if (colon != std::string::npos) options.address = flag.substr(0, colon);
  const std::optional<int> port = parse_int(colon == std::string::npos ? flag : flag.substr(colon + 1));
  constexpr int kMost = 65'535;
  if (options.address.empty() || !port || *port < 0 || *port > kMost) {
    fail<InvalidArgument>("[train] --metrics_port=", flag, " is no port, wanted PORT or ADDRESS:PORT, as 9090");
  }
  options.port = *port == 0 ? 0 : *port + local_rank;
  return options;
}

struct ServedRun {
  std::string flag;
  std::optional<MetricsServer> server;
};

}  // namespace

RunObserverMaker metrics_port() {
  return {.make = [](CLI::App& app) {
    const auto run = std::make_shared<ServedRun>();
    app.add_option(
        "--metrics_port", run->flag,
        "port, or address:port, where Prometheus finds /metrics, and Kubernetes /healthz and /readyz; workers "
        "of one machine have the ports after it; 0: a free one");
    const auto begin = [run](RunOptions& options) {
      if (run->flag.empty()) return;
      run->server.emplace(options_of(run->flag, local_place().rank));
      std::cout << "metrics on port " << run->server->port() << std::endl;
      options.observe = [run, others = options.observe](const MetricsRecord& record) {
        if (others) others(record);
        run->server->note(record);
      };
    };
    const auto met = [run](const Strategy& strategy) {
      if (!run->server) return;
      run->server->note(strategy);
      run->server->set_ready(true);
    };
    return RunObserver{.begin = begin, .met = met};
  }};
}

}  // namespace cohort
