// The keys of task.model that config.json of a folder of Hugging Face's decides.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "cohort/models/config.h"
#include "cohort/models/text_models.h"

namespace cohort {

// Keys within task.model, each with its value as YAML.
using ModelKeys = std::vector<std::pair<std::string, std::string>>;

// Returns the keys of what such a model computes.
ModelKeys keys_of(const models::DecoderOptions& options);
ModelKeys keys_of(const models::BertOptions& options);
// Returns the keys of how such a model is trained, which may be changed.
ModelKeys training_keys_of(const models::DecoderOptions& options);
ModelKeys training_keys_of(const models::BertOptions& options);

// Sets the keys that nobody has set, to the options of the folder.
void set_missing(const ModelKeys& keys, const std::filesystem::path& folder, Config& config);
template <typename Options>
void set_missing_by(const Options& options, const std::filesystem::path& folder, Config& config) {
  set_missing(keys_of(options), folder, config);
  set_missing(training_keys_of(options), folder, config);
}

// Fails with InvalidArgument if the keys of the configuration differ from those of the folder, and names them.
void require_same(const ModelKeys& own, const ModelKeys& theirs, const std::filesystem::path& folder);

}  // namespace cohort
