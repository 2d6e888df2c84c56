// --log_format=json: standard output, standard error and the log become lines of JSON. The streams get other buffers as
// soon as the flag is read, so that errors of the configuration are told in this form, too.
#include "wings/monitoring/models/log_format.h"

#include <spdlog/formatter.h>

#include <iostream>
#include <memory>
#include <optional>

#include "base/access.h"
#include "base/log.h"
#include "strategy/core.h"
#include "wings/monitoring/train/json_lines.h"

namespace cohort {

namespace {

// Makes the lines of the log.
class LogLines final : public spdlog::formatter {
 public:
  // Every line gets the fields.
  explicit LogLines(nlohmann::ordered_json fields = nullptr) : fields_(std::move(fields)) {}

  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& to) override {
    const auto level = spdlog::level::to_string_view(message.level);
    const std::string line = json_line(message.time, std::string(level.data(), level.size()),
                                       std::string(message.payload.data(), message.payload.size()), fields_);
    to.append(line);
    to.push_back('\n');
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<LogLines>(fields_); }

 private:
  const nlohmann::ordered_json fields_;
};

struct Lines {
  JsonLines output{std::cout, "info"};
  JsonLines errors{std::cerr, "error"};
};

nlohmann::ordered_json fields_of(const MetricsRecord& record) {
  nlohmann::ordered_json fields = {{"phase", record.mode}, {"step", record.step}, {"epoch", record.epoch}};
  for (const auto& [name, value] : record.metrics) fields["metrics"][name] = value;
  if (record.examples_per_second > 0) fields["examples_per_second"] = record.examples_per_second;
  return fields;
}

}  // namespace

RunObserverMaker log_format() {
  return {.make = [](CLI::App& app) {
    const auto lines = std::make_shared<std::optional<Lines>>();
    const auto begin_lines = [lines](const std::string& format) {
      if (format != "json") return;
      lines->emplace();
      log().set_formatter(std::make_unique<LogLines>());
    };
    app.add_option_function<std::string>("--log_format", begin_lines,
                                         "form of all output: text, or json for one object a line, as collectors of "
                                         "logs read it")
        ->check(CLI::IsMember({"text", "json"}))
        ->default_str("text")
        ->trigger_on_parse();
    const auto begin = [lines](RunOptions& options) {
      if (!*lines) return;
      options.observe = [lines, others = options.observe](const MetricsRecord& record) {
        if (others) others(record);
        (*lines)->output.write(record.mode, fields_of(record));
      };
    };
    const auto met = [lines](const Strategy& strategy) {
      if (!*lines) return;
      const nlohmann::ordered_json rank = {{"rank", Access::core(strategy)->worker_rank()}};
      (*lines)->output.set_fields(rank);
      (*lines)->errors.set_fields(rank);
      log().set_formatter(std::make_unique<LogLines>(rank));
    };
    return RunObserver{.begin = begin, .met = met};
  }};
}

}  // namespace cohort
