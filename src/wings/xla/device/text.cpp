#include "wings/xla/device/text.h"

#include <regex>

#include "base/fail.h"

namespace cohort {

namespace {

void check_head(const std::string& text, const std::string& attribute, int wanted) {
  const std::string_view head = std::string_view(text).substr(0, text.find("func.func"));
  const std::string opening = attribute + " = ";
  const std::size_t place = head.find(opening);
  if (place == std::string_view::npos) return;
  const std::size_t number = place + opening.size();
  const std::string said(head.substr(number, head.find_first_not_of("0123456789", number) - number));
  if (said != std::to_string(wanted)) {
    fail<InvalidArgument>("[xla] the program says ", opening, said, ", but the options of its compilation ", wanted);
  }
}

// Returns the line of the text that the message names, as in "-:4:10: error: ...", or an empty text.
std::string named_line(const std::string& message, const std::string& text) {
  static const std::regex place(R"((?:-|"|<unknown>|<string>):([1-9][0-9]{0,8}):[0-9]+)");
  std::smatch found;
  if (!std::regex_search(message, found, place)) return "";
  const auto wanted = std::stoul(found[1]);
  std::size_t begin = 0;
  for (std::size_t line = 1; line < wanted && begin != std::string::npos; ++line) {
    begin = text.find('\n', begin);
    if (begin != std::string::npos) ++begin;
  }
  if (begin == std::string::npos || begin >= text.size()) return "";
  return c10::str("line ", wanted, " of the program is: ", text.substr(begin, text.find('\n', begin) - begin));
}

}  // namespace

void check_text(const std::string& text, const XlaCompileOptions& options) {
  check_head(text, "mhlo.num_replicas", options.num_replicas);
  check_head(text, "mhlo.num_partitions", options.num_partitions);
}

void blame_text(const std::string& text, const std::function<void()>& compile) {
  try {
    compile();
  } catch (const Error& error) {
    const std::string line = named_line(error.what(), text);
    if (line.empty()) throw;
    fail<InvalidArgument>(error.what(), "\n[xla] ", line);
  }
}

pjrt::Program program_of(std::string& text) {
  constexpr std::string_view kFormat = "mlir";
  pjrt::Program program;
  program.code = text.data();
  program.code_size = text.size();
  program.format = kFormat.data();
  program.format_size = kFormat.size();
  return program;
}

}  // namespace cohort
