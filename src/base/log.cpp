#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <ostream>
#include <set>
#include <string>

namespace cohort {

namespace {

std::mutex standing_mutex;
std::ostream* standing = nullptr;  // the stream of the standing line

// Ends the standing line. The caller holds the mutex.
void end_standing_line() {
  if (standing == nullptr) return;
  *standing << std::endl;
  standing = nullptr;
}

class LogSink final : public spdlog::sinks::stderr_color_sink_mt {
 public:
  void log(const spdlog::details::log_msg& message) override {
    const std::lock_guard lock(standing_mutex);
    if (standing != nullptr && isatty(STDERR_FILENO) != 0) end_standing_line();
    spdlog::sinks::stderr_color_sink_mt::log(message);
  }
};

std::shared_ptr<spdlog::logger> make_logger() {
  auto logger = std::make_shared<spdlog::logger>("cohort", std::make_shared<LogSink>());
  logger->set_pattern("[%Y-%m-%d %H:%M:%S.%e] [%^%l%$] %v");
  const char* level = std::getenv("COHORT_LOG_LEVEL");
  logger->set_level(level ? spdlog::level::from_str(level) : spdlog::level::warn);
  return logger;
}

}  // namespace

spdlog::logger& log() {
  static const std::shared_ptr<spdlog::logger> logger = make_logger();
  return *logger;
}

void warn_once(std::string_view message) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> said;
  const std::lock_guard lock(mutex);
  if (said.emplace(message).second) log().warn("{}", message);
}

void StandingLine::draw(std::ostream& out, std::string_view text) {
  const std::lock_guard lock(standing_mutex);
  out << text << std::flush;
  standing = &out;
}

void StandingLine::end(std::ostream& out) {
  const std::lock_guard lock(standing_mutex);
  if (standing == &out) end_standing_line();
}

}  // namespace cohort
