// JsonLines: the lines of a program as objects of JSON, one a line, as collectors of logs read them.
#pragma once

#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <ostream>
#include <streambuf>
#include <string>

namespace cohort {

// Returns the time, the level and the text as one line of JSON without its end. `more` has further fields, or is null.
// The time is in UTC, with milliseconds. Bytes that are not UTF-8 become U+FFFD.
std::string json_line(std::chrono::system_clock::time_point time, const std::string& level, const std::string& message,
                      const nlohmann::ordered_json& more = nullptr);

// While it lives, all that is written to `stream` comes out as lines of JSON. Thread-safe.
class JsonLines final : public std::streambuf {
 public:
  // `stream` lives longer. Each line gets `level`.
  JsonLines(std::ostream& stream, std::string level);
  JsonLines(const JsonLines&) = delete;
  JsonLines& operator=(const JsonLines&) = delete;
  ~JsonLines() override;

  // Sets further fields for all lines from now on.
  void set_fields(nlohmann::ordered_json fields);
  // Writes a line of its own with the fields of all lines and these.
  void write(const std::string& message, const nlohmann::ordered_json& fields);

 protected:
  int_type overflow(int_type character) override;
  std::streamsize xsputn(const char* text, std::streamsize count) override;
  int sync() override;

 private:
  void put(const std::string& message, const nlohmann::ordered_json& fields);

  std::mutex mutex_;
  std::ostream& stream_;
  std::streambuf* const output_;
  const std::string level_;
  std::string line_;  // what was written after the last end of a line
  nlohmann::ordered_json fields_ = nlohmann::ordered_json::object();
};

}  // namespace cohort
