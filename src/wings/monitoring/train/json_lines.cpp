#include "wings/monitoring/train/json_lines.h"

#include <fmt/chrono.h>

#include <utility>

namespace cohort {

std::string json_line(std::chrono::system_clock::time_point time, const std::string& level, const std::string& message,
                      const nlohmann::ordered_json& more) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(time - seconds).count();
  nlohmann::ordered_json line = {
      {"time",
       fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)), rest)},
      {"level", level},
      {"message", message}};
  if (more.is_object()) line.update(more);
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

JsonLines::JsonLines(std::ostream& stream, std::string level)
    : stream_(stream), output_(stream.rdbuf()), level_(std::move(level)) {
  stream_.rdbuf(this);
}

JsonLines::~JsonLines() {
  stream_.rdbuf(output_);
  if (!line_.empty()) put(line_, nullptr);
}

void JsonLines::set_fields(nlohmann::ordered_json fields) {
  const std::lock_guard lock(mutex_);
  fields_ = std::move(fields);
}

void JsonLines::write(const std::string& message, const nlohmann::ordered_json& fields) {
  const std::lock_guard lock(mutex_);
  put(message, fields);
}

JsonLines::int_type JsonLines::overflow(int_type character) {
  if (traits_type::eq_int_type(character, traits_type::eof())) return traits_type::not_eof(character);
  const char one = traits_type::to_char_type(character);
  return xsputn(&one, 1) == 1 ? character : traits_type::eof();
}

std::streamsize JsonLines::xsputn(const char* text, std::streamsize count) {
  const std::lock_guard lock(mutex_);
  for (std::streamsize i = 0; i < count; ++i) {
    if (text[i] != '\n') {
      line_ += text[i];
      continue;
    }
    if (!line_.empty()) put(line_, nullptr);
    line_.clear();
  }
  return count;
}

int JsonLines::sync() {
  return output_->pubsync();
}

// The caller holds mutex_.
void JsonLines::put(const std::string& message, const nlohmann::ordered_json& fields) {
  nlohmann::ordered_json all = fields_;
  if (fields.is_object()) all.update(fields);
  const std::string line = json_line(std::chrono::system_clock::now(), level_, message, all) + "\n";
  output_->sputn(line.data(), static_cast<std::streamsize>(line.size()));
  output_->pubsync();
}

}  // namespace cohort
