#include "base/error_text.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <new>

namespace cohort {

namespace {

// Returns the message without the place and the condition in LibTorch's source that
// "[enforce fail at alloc_cpu.cpp:66] err == 0. The message" begins with.
std::string without_place(const std::string& text) {
  if (!text.starts_with("[enforce fail at ")) return text;
  const std::size_t end = text.find(". ", std::min(text.find(']'), text.size()));
  return end == std::string::npos ? text : text.substr(end + 2);
}

}  // namespace

std::string error_text(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "[memory] there is not enough memory";
  const auto* const torch = dynamic_cast<const c10::Error*>(&error);
  if (torch == nullptr) return error.what();
  std::string text = without_place(torch->what_without_backtrace());
  text.erase(text.find_last_not_of(" \n") + 1);
  return "[libtorch] " + text;
}

}  // namespace cohort
