#include "train/callbacks/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "cohort/train/callbacks.h"

namespace cohort {

std::ofstream open_log(const std::filesystem::path& file, std::ios::openmode mode, std::string_view who) {
  std::error_code ignored;
  const bool is_pipe = std::filesystem::is_fifo(file, ignored);
  const int probe = is_pipe ? ::open(file.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC) : -1;
  std::ofstream stream;
  if (!is_pipe || probe >= 0) stream.open(file, mode);
  const int error = errno;
  if (probe >= 0) ::close(probe);
  if (stream.is_open()) return stream;
  fail<Unavailable>("[callbacks] ", who, ": ", file.string(), " cannot be opened: ",
                    is_pipe && error == ENXIO ? "it is a pipe that nobody reads" : std::strerror(error));
}

void write_log(std::ofstream& stream, const std::string& text, const std::filesystem::path& file,
               std::string_view who) {
  stream << text << std::flush;
  if (!stream)
    fail<Unavailable>("[callbacks] ", who, ": ", file.string(), " cannot be written: ", std::strerror(errno));
}

void append_metrics(const std::filesystem::path& file, const MetricsRecord& record) {
  nlohmann::ordered_json line{{"step", record.step}, {"epoch", record.epoch}, {"mode", record.mode}};
  for (const auto& [name, value] : record.metrics) line[name] = value;  // JSON writes null if it is not finite
  line["examples_per_second"] = record.examples_per_second;
  std::ofstream stream = open_log(file, std::ios::app, "metrics");
  write_log(stream, line.dump() + "\n", file, "metrics");
}

}  // namespace cohort
