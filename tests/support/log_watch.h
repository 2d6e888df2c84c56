// LogWatch: a place of the log that calls a function with each message.
#pragma once

#include <spdlog/sinks/base_sink.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/log.h"

namespace cohort::testing {

class LogWatch {
 public:
  // Calls the function with each message from now on, on the thread that logs; several may at the same time. Nobody
  // logs while it is made or destroyed.
  explicit LogWatch(std::function<void(const std::string&)> seen) : sink_(std::make_shared<Sink>(std::move(seen))) {
    log().sinks().push_back(sink_);
  }
  LogWatch(const LogWatch&) = delete;
  LogWatch& operator=(const LogWatch&) = delete;
  ~LogWatch() { std::erase(log().sinks(), sink_); }

 private:
  class Sink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
   public:
    explicit Sink(std::function<void(const std::string&)> seen) : seen_(std::move(seen)) {}

   private:
    void sink_it_(const spdlog::details::log_msg& message) override {
      seen_({message.payload.begin(), message.payload.end()});
    }
    void flush_() override {}

    std::function<void(const std::string&)> seen_;
  };

  spdlog::sink_ptr sink_;
};

}  // namespace cohort::testing
