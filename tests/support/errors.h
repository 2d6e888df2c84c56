// Helpers that return what a call throws.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>

namespace cohort::testing {

// The message of the Kind that fn throws; "another error: ..." or "no error" otherwise.
template <typename Kind, typename Fn>
std::string error_of(const Fn& fn) {
  try {
    fn();
  } catch (const Kind& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
  return "no error";
}

// Expects fn to throw a Kind whose message has `part` in it.
template <typename Kind, typename Fn>
void expect_error(const Fn& fn, const std::string& part) {
  const std::string message = error_of<Kind>(fn);
  EXPECT_NE(message.find(part), std::string::npos) << message << "; wanted one with \"" << part << "\"";
}

}  // namespace cohort::testing
