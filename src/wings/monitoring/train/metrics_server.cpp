#include "cohort/train/metrics_server.h"

#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <iterator>

#include "base/fail.h"
#include "cohort/train/model.h"
#include "wings/monitoring/train/figures.h"
#include "wings/monitoring/train/http_server.h"

namespace cohort {

namespace {

// Notes how fit() and evaluate() come on.
class ServedFigures final : public Callback {
 public:
  explicit ServedFigures(std::shared_ptr<Figures> figures) : figures_(std::move(figures)) {}

  void on_train_begin(const RunInfo& run) override { begin(run); }
  void on_test_begin(const RunInfo& run) override { begin(run); }
  void on_batch_end(const RunInfo& run, const BatchLogs& /*logs*/) override { figures_->note_step(run.step); }
  void on_epoch_end(const RunInfo& run, Logs& logs) override { note("train", run, logs); }
  void on_test_end(const RunInfo& run, const Logs& logs) override { note("eval", run, logs); }

 private:
  void begin(const RunInfo& run) {
    figures_->note(run.model.strategy());
    figures_->set_ready(true);
  }
  void note(const char* phase, const RunInfo& run, const Logs& logs) {
    Logs own;  // the logs of an epoch have those of its validation, too
    for (const auto& [name, value] : logs) {
      if (!name.starts_with("val_")) own.set(name, value);
    }
    figures_->note({.step = run.step,
                    .epoch = run.epoch + 1,
                    .mode = phase,
                    .metrics = own,
                    .examples_per_second = run.examples_per_second});
  }

  std::shared_ptr<Figures> figures_;
};

HttpAnswer metrics(const Figures& figures, const prometheus::Registry& registry) {
  std::vector<prometheus::MetricFamily> families = figures.collect();
  std::vector<prometheus::MetricFamily> own = registry.Collect();
  std::move(own.begin(), own.end(), std::back_inserter(families));
  return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = prometheus::TextSerializer().Serialize(families)};
}

HttpAnswer readiness(const Figures& figures) {
  if (figures.ready()) return {.body = "ready\n"};
  return {.status = 503, .body = "the workers have not met yet\n"};
}

int port_of(const MetricsServerOptions& options) {
  constexpr int kMost = 65'535;
  if (options.port >= 0 && options.port <= kMost) return options.port;
  fail<InvalidArgument>("[metrics] port is ", options.port, ", wanted 0 to ", kMost);
}

}  // namespace

struct MetricsServer::State {
  explicit State(const MetricsServerOptions& options)
      : figures(std::make_shared<Figures>(options.labels)),
        server(options.address, port_of(options),
               {{"/metrics", [this] { return metrics(*figures, *registry); }},
                {"/healthz", [] { return HttpAnswer{.body = "ok\n"}; }},
                {"/readyz", [this] { return readiness(*figures); }}}) {}

  std::shared_ptr<Figures> figures;
  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  HttpServer server;  // the last one: its threads use the others
};

MetricsServer::MetricsServer(const MetricsServerOptions& options) : state_(std::make_unique<State>(options)) {}
MetricsServer::MetricsServer(MetricsServer&&) noexcept = default;
MetricsServer& MetricsServer::operator=(MetricsServer&&) noexcept = default;
MetricsServer::~MetricsServer() = default;

int MetricsServer::port() const {
  return state_->server.port();
}

void MetricsServer::set_ready(bool ready) {
  state_->figures->set_ready(ready);
}

void MetricsServer::note(const MetricsRecord& record) {
  state_->figures->note(record);
}

void MetricsServer::note(const Strategy& strategy) {
  state_->figures->note(strategy);
}

CallbackPtr MetricsServer::callback() {
  return std::make_shared<ServedFigures>(state_->figures);
}

const std::shared_ptr<prometheus::Registry>& MetricsServer::registry() const {
  return state_->registry;
}

}  // namespace cohort
