// MetricsServer: serves the figures of a training to Prometheus, and answers the probes of Kubernetes.
//
//   MetricsServer server({.port = 9090});
//   model.fit(data, {.epochs = 5, .callbacks = {server.callback()}});
//
// `cohort train --metrics_port=9090` does the same for experiments.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "cohort/train/callbacks.h"

namespace prometheus {
class Registry;
}  // namespace prometheus

namespace cohort {

struct MetricsServerOptions {
  std::string address = "0.0.0.0";                 // the address to listen on; "127.0.0.1": for this machine alone
  int port = 9090;                                 // the port to listen on; 0: a free one
  std::map<std::string, std::string> labels = {};  // labels of all its figures, beside those of each
};

// Answers GET over HTTP while it lives, to everybody who reaches the port, without encryption:
//
//   /metrics   the figures in Prometheus' text format
//   /healthz   "ok"
//   /readyz    "ready", or status 503 until set_ready()
//
// The names of its figures begin with "cohort_" or "process_"; docs/wings/monitoring.md has them all. Thread-safe. The
// server ignores SIGPIPE, in the whole process.
class MetricsServer {
 public:
  // Unavailable: the port is taken. InvalidArgument: the address, the port or a label is none.
  explicit MetricsServer(const MetricsServerOptions& options = {});
  MetricsServer(MetricsServer&&) noexcept;
  MetricsServer& operator=(MetricsServer&&) noexcept;
  ~MetricsServer();

  // Returns the port that it listens on.
  int port() const;
  // Sets the answer to /readyz: whether the workers have met, so that the training can run.
  void set_ready(bool ready);
  // Notes how a program with a loop of its own comes on. The mode is the label "phase".
  void note(const MetricsRecord& record);
  // Notes the strategy, for the figure cohort_info, and reports the memory of its devices.
  void note(const Strategy& strategy);
  // Returns a callback that does all of this for fit() and evaluate(). It may outlive the server.
  CallbackPtr callback();
  // Returns the registry for figures of the program's own, whose types are in Prometheus' headers.
  const std::shared_ptr<prometheus::Registry>& registry() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cohort
