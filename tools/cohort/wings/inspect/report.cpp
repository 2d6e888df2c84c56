// cohort report: makes a self-contained page of HTML that shows and compares runs.
#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/atomic_file.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/regular_file.h"
#include "report_page.h"
#include "wings/inspect/inspect.h"

namespace cohort::cli {

namespace {

struct ReportFlags {
  std::vector<std::filesystem::path> runs;
  std::filesystem::path output = "report.html";
};

// Returns the lines of metrics.jsonl. A run that was killed may have left half a line.
nlohmann::json records_of(const std::filesystem::path& run) {
  const std::filesystem::path file = run / "metrics.jsonl";
  const std::optional<std::string> text = read_regular_file(file, "report");
  if (!text) fail<NotFound>("[report] ", file.string(), " cannot be opened: is this the model_dir of a run?");
  nlohmann::json records = nlohmann::json::array();
  std::istringstream lines(*text);
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const nlohmann::json read = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    const bool record_like = read.is_object() && read.contains("step") && read["step"].is_number() &&
                             read.contains("mode") && read["mode"].is_string();
    if (!record_like) {
      log().warn("[report] {}, line {}: this is no record, and left out", file.string(), number);
      continue;
    }
    nlohmann::json record{{"step", read["step"]}, {"mode", read["mode"]}, {"values", nlohmann::json::object()}};
    if (read.contains("epoch")) record["epoch"] = read["epoch"];
    // A null stands for a number that was not finite, which JSON does not have.
    for (const auto& [key, value] : read.items()) {
      if ((value.is_number() || value.is_null()) && key != "step" && key != "epoch") record["values"][key] = value;
    }
    records.push_back(std::move(record));
  }
  return records;
}

void flatten(const YAML::Node& node, const std::string& path, nlohmann::ordered_json& to) {
  if (!node.IsMap()) {
    YAML::Emitter out;
    out << YAML::Flow << node;
    to[path] = out.c_str();
    return;
  }
  for (const auto& member : node) {
    flatten(member.second, path.empty() ? member.first.Scalar() : path + "." + member.first.Scalar(), to);
  }
}

nlohmann::ordered_json params_of(const std::filesystem::path& run) {
  nlohmann::ordered_json params = nlohmann::json::object();
  const std::optional<std::string> text = read_regular_file(run / "params.yaml", "report");
  if (!text) return params;
  try {
    flatten(YAML::Load(*text), "", params);
  } catch (const YAML::Exception& error) {
    fail<DataLoss>("[report] ", (run / "params.yaml").string(), ", line ", error.mark.line + 1, ": ", error.msg);
  }
  return params;
}

nlohmann::ordered_json read_run(const std::filesystem::path& run) {
  nlohmann::ordered_json made{
      {"name", run.lexically_normal().string()}, {"records", records_of(run)}, {"params", params_of(run)}};
  if (const auto text = read_regular_file(run / "timeline.json", "report")) {
    nlohmann::ordered_json timeline = nlohmann::ordered_json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (timeline.is_object() && timeline.contains("threads")) made["timeline"] = std::move(timeline);
  }
  return made;
}

// Returns the data as the content of a script element, without any "</", which could end the element.
std::string embedded(const nlohmann::ordered_json& data) {
  std::string text = data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  for (std::size_t at = 0; (at = text.find("</", at)) != std::string::npos; at += 3) text.replace(at, 2, "<\\/");
  return text;
}

int report(const ReportFlags& flags) {
  nlohmann::ordered_json runs = nlohmann::json::array();
  for (const std::filesystem::path& run : flags.runs) runs.push_back(read_run(run));
  std::string page = kReportPage;
  constexpr std::string_view kMark = "%DATA%";
  page.replace(page.find(kMark), kMark.size(), embedded(runs));
  AtomicFile file(flags.output);
  file.write(page);
  file.commit();
  std::cout << "report: " << flags.output.string() << "\n";
  return 0;
}

}  // namespace

Command add_report(CLI::App& app) {
  const auto flags = std::make_shared<ReportFlags>();
  app.add_option("model_dir", flags->runs, "folders of the runs to show")->required();
  app.add_option("--output", flags->output, "file of the page")->capture_default_str();
  return [flags] { return report(*flags); };
}

}  // namespace cohort::cli
