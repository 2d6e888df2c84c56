#include "models/command/decimals.h"

#include <algorithm>

namespace cohort {

void read_decimals(CLI::App& app) {
  // Removes leading zeros. Returns what is wrong.
  const auto strip = [](std::string& text) -> std::string {
    const std::size_t begin = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
    if (begin == text.size() || text.find_first_not_of("0123456789", begin) != std::string::npos) {
      return text + " is not a whole decimal number";
    }
    text.erase(begin, std::min(text.find_first_not_of('0', begin), text.size() - 1) - begin);
    return "";
  };
  for (CLI::Option* option : app.get_options()) {
    if (option->get_type_name() == "INT") option->transform(CLI::Validator(strip, ""));
  }
  for (CLI::App* command : app.get_subcommands(nullptr)) read_decimals(*command);
}

}  // namespace cohort
