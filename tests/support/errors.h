// What a call throws.
#pragma once

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

}  // namespace cohort::testing
