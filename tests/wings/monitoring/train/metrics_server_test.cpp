// The server beside trainings, asked over HTTP.
#include "cohort/train/metrics_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <prometheus/counter.h>
#include <prometheus/registry.h>
#include <sys/socket.h>
#include <torch/torch.h>
#include <unistd.h>

#include <thread>

#include "cohort/cohort.h"
#include "cohort/error.h"
#include "tests/support/errors.h"
#include "wings/monitoring/train/span_totals.h"

namespace cohort::testing::metrics_server_test {
namespace {

// Returns the whole answer to a request.
std::string answer_of(int port, const std::string& request) {
  const int place = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(place, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) {
    const std::string text = request + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
    EXPECT_EQ(send(place, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    char part[4096];
    for (ssize_t size = 0; (size = recv(place, part, sizeof part, 0)) > 0;) {
      answer.append(part, static_cast<std::size_t>(size));
    }
  }
  close(place);
  return answer;
}

std::string get(const MetricsServer& server, const std::string& path) {
  return answer_of(server.port(), "GET " + path);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

MetricsServerOptions here() {
  return {.address = "127.0.0.1", .port = 0};
}

TEST(MetricsServerTest, AnswersProbes) {
  MetricsServer server(here());
  EXPECT_TRUE(has(get(server, "/healthz"), "200 OK"));
  EXPECT_TRUE(has(get(server, "/readyz"), "503 Service Unavailable"));
  EXPECT_TRUE(has(get(server, "/metrics"), "cohort_ready 0"));
  server.set_ready(true);
  EXPECT_TRUE(has(get(server, "/readyz"), "200 OK"));
  EXPECT_TRUE(has(get(server, "/metrics"), "cohort_ready 1"));
  server.set_ready(false);
  EXPECT_TRUE(has(get(server, "/readyz"), "503"));
}

TEST(MetricsServerTest, ServesNothingElse) {
  const MetricsServer server(here());
  for (const char* path : {"/", "/etc/passwd", "/../../etc/passwd", "/metrics/more", "/metricsmore"}) {
    EXPECT_TRUE(has(get(server, path), "404")) << path << get(server, path);
  }
  for (const char* request : {"POST /metrics", "PUT /metrics", "DELETE /healthz", "OPTIONS /metrics"}) {
    EXPECT_FALSE(has(answer_of(server.port(), request), "cohort_")) << request;
  }
  const std::string head = answer_of(server.port(), "HEAD /metrics");
  EXPECT_TRUE(has(head, "200 OK"));
  EXPECT_FALSE(has(head, "cohort_"));
  EXPECT_FALSE(has(answer_of(server.port(), "GET /" + std::string(100'000, 'x')), "200"));
  EXPECT_TRUE(has(get(server, "/healthz"), "200 OK"));
}

TEST(MetricsServerTest, TellsOfAFit) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  MetricsServer server({.address = "127.0.0.1", .port = 0, .labels = {{"job", "a \"test\""}}});
  Sequential model{Dense(1)};
  model.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = MeanSquaredError(), .metrics = {"mae"}});
  const Dataset data = Dataset::from_tensor_slices(torch::ones({16, 3}), torch::ones({16, 1})).batch(4);
  model.fit(data,
            {.epochs = 2, .validation_data = data, .callbacks = {server.callback()}, .verbose = Verbose::kSilent});
  const std::string text = get(server, "/metrics");
  EXPECT_TRUE(has(text, "cohort_global_step{job=\"a \\\"test\\\"\"} 8\n")) << text;
  EXPECT_TRUE(has(text, "cohort_info{job=\"a \\\"test\\\"\",rank=\"0\",replicas=\"2\",strategy=\"mirrored\"} 1\n"))
      << text;
  for (const char* phase : {"train", "eval"}) {
    for (const char* name : {"loss", "mae"}) {
      EXPECT_TRUE(has(text, c10::str("name=\"", name, "\",phase=\"", phase, "\"} "))) << text;
    }
  }
  EXPECT_FALSE(has(text, "val_")) << text;
  EXPECT_TRUE(has(text, "category=\"compute\"} ")) << text;
  EXPECT_TRUE(has(text, "process_resident_memory_bytes{")) << text;
  EXPECT_TRUE(has(get(server, "/readyz"), "200 OK"));
}

TEST(MetricsServerTest, ServesFiguresOfTheProgram) {
  const MetricsServer server(here());
  prometheus::BuildCounter().Name("words_total").Help("Words.").Register(*server.registry()).Add({}).Increment(3);
  EXPECT_TRUE(has(get(server, "/metrics"), "# TYPE words_total counter\nwords_total 3\n"));
}

TEST(MetricsServerTest, SaysWhatIsWrong) {
  const MetricsServer server(here());
  expect_error<Unavailable>([&] { MetricsServer({.address = "127.0.0.1", .port = server.port()}); }, "in use");
  expect_error<Unavailable>([] { MetricsServer({.address = "nowhere", .port = 0}); }, "cannot listen on nowhere:0");
  expect_error<InvalidArgument>([] { MetricsServer({.port = 65'536}); }, "wanted 0 to 65535");
  expect_error<InvalidArgument>([] { MetricsServer({.port = 0, .labels = {{"a-b", "x"}}}); }, "\"a-b\" is no label");
  expect_error<InvalidArgument>([] { MetricsServer({.port = 0, .labels = {{"phase", "x"}}}); }, "the label phase");
}

TEST(MetricsServerTest, StopsWhileOthersAsk) {
  std::optional<MetricsServer> server(here());
  const int port = server->port();
  std::atomic<bool> ends = false;
  std::thread asks([&] {
    while (!ends) answer_of(port, "GET /metrics");
  });
  for (int i = 0; i < 50; ++i) server->note({.step = i, .mode = "train", .metrics = {{"loss", 0.5}}});
  server.reset();
  ends = true;
  asks.join();
  EXPECT_EQ(answer_of(port, "GET /healthz"), "");
}

TEST(SpanTotalsTest, TimeWithinASpanIsTheInnerOnes) {
  using Clock = std::chrono::steady_clock;
  SpanTotals totals;
  std::thread([&] {
    const auto at = [begin = Clock::now()](int seconds) { return begin + std::chrono::seconds(seconds); };
    totals.add("communication", "send", at(2), at(3));
    totals.add("communication", "recv", at(4), at(6));
    totals.add("compute", "backward", at(1), at(9));
    totals.add("input", "wait", at(10), at(11));
    totals.add("evaluation", "all", at(0), at(12));
  }).join();
  const std::map<std::string, double> wanted = {
      {"communication", 3.0}, {"compute", 5.0}, {"input", 1.0}, {"evaluation", 3.0}};
  EXPECT_EQ(totals.seconds(), wanted);
  EXPECT_FALSE(totals.last_checkpoint().has_value());
  totals.add("checkpoint", "write", Clock::now(), Clock::now());
  EXPECT_NEAR(*totals.last_checkpoint(), static_cast<double>(std::time(nullptr)), 5.0);
}

}  // namespace
}  // namespace cohort::testing::metrics_server_test
