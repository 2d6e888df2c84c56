// The file params.yaml of a run: a line that names the experiment, which YAML takes for a comment, and its
// configuration.
#pragma once

#include <string>
#include <string_view>

#include "cohort/models/config.h"

namespace cohort {

inline constexpr std::string_view kExperimentLine = "# experiment: ";

// Returns the text of the file.
inline std::string params_text(const std::string& experiment, const Config& config) {
  return std::string(kExperimentLine) + experiment + "\n" + config.to_yaml();
}

// Returns the experiment that the text names, or nothing: earlier versions named none.
inline std::string experiment_of_params(std::string_view text) {
  if (!text.starts_with(kExperimentLine)) return {};
  text.remove_prefix(kExperimentLine.size());
  return std::string(text.substr(0, text.find('\n')));
}

}  // namespace cohort
