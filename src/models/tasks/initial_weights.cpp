#include "models/tasks/initial_weights.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/fail.h"
#include "base/regular_file.h"
#include "cohort/checkpoint.h"
#include "cohort/weights.h"
#include "train/loop/parts.h"

namespace cohort {

namespace {

constexpr const char* kFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// Returns the names of the files of weights, which the index gives for each tensor.
std::set<std::string> files_of(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder / kIndex)) return {kFile};
  const std::string text = read_regular_file(folder / kIndex, "task").value_or("");
  const auto index = nlohmann::json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  std::set<std::string> files;
  if (index.is_object() && index.contains("weight_map") && index["weight_map"].is_object()) {
    for (const auto& file : index["weight_map"]) {
      if (file.is_string()) files.insert(file.get<std::string>());
    }
  }
  const auto outside = std::find_if(files.begin(), files.end(),
                                    [](const std::string& file) { return file.find('/') != std::string::npos; });
  if (files.empty() || outside != files.end()) {
    fail<DataLoss>("[task] ", (folder / kIndex).string(),
                   ": wanted an object \"weight_map\" that gives a file of the folder for each tensor",
                   outside == files.end() ? "" : ", got " + *outside);
  }
  return files;
}

NamedTensors weights_at(const std::filesystem::path& place) {
  if (!std::filesystem::is_directory(place)) return load_weights(place).tensors;
  if (!is_hugging_face(place)) return read_checkpoint(place).data.tensors["model"];
  NamedTensors all;
  for (const std::string& file : files_of(place)) {
    NamedTensors own = load_weights(place / file).tensors;
    std::move(own.begin(), own.end(), std::back_inserter(all));
  }
  return all;
}

bool of_adapter(const std::string& name) {
  return name.find(".lora_A.") != std::string::npos || name.find(".lora_B.") != std::string::npos;
}

// Returns the name that newer versions of transformers give a weight of BERT.
std::string newer_name(std::string name) {
  for (const auto& [older, newer] : {std::pair(".gamma", ".weight"), std::pair(".beta", ".bias")}) {
    if (!name.ends_with(std::string("LayerNorm") + older)) continue;
    name.replace(name.rfind(older), std::string::npos, newer);
  }
  return name;
}

}  // namespace

bool is_hugging_face(const std::filesystem::path& place) {
  const auto has = [&](const char* name) {
    std::error_code ignored;
    return std::filesystem::exists(place / name, ignored);
  };
  return has("config.json") && (has(kFile) || has(kIndex));
}

void start_from(const std::filesystem::path& place, const std::optional<std::string>& head, Model& built) {
  const auto read = [&] {
    NamedTensors given = weights_at(place);
    if (head) std::erase_if(given, [&](const auto& item) { return item.first.starts_with(*head + "."); });
    if (given.empty()) fail<InvalidArgument>("[task] ", place.string(), " holds no weights of a backbone");
    return given;
  };
  built.set_weights({}, /*strict=*/false);  // tells the model that its weights change
  load_from_chief(built.module(), read, {.what = "the weights to start from", .strict = !head});
}

void start_beside_adapters(const std::filesystem::path& place, Model& built) {
  const NamedTensors own = built.weights();
  const auto read = [&] {
    NamedTensors given = weights_at(place);
    std::set<std::string> names;
    for (const auto& item : given) names.insert(item.first);
    for (const auto& item : own) {
      if (of_adapter(item.first) || names.contains(item.first)) continue;
      fail<NotFound>("[task] ", place.string(), " has no ", item.first);
    }
    return given;
  };
  built.set_weights({}, /*strict=*/false);  // tells the model that its weights change
  load_from_chief(built.module(), read, {.what = "the weights to start from", .strict = false});
}

void start_from_bert(const std::filesystem::path& place, Model& built) {
  const NamedTensors own = built.weights();
  const auto read = [&] {
    std::map<std::string, torch::Tensor> given;
    for (auto& [name, tensor] : weights_at(place)) given[newer_name(name)] = tensor;
    NamedTensors taken;
    for (const auto& item : own) {
      const auto found = given.find(item.first);
      if (found == given.end()) fail<NotFound>("[task] ", place.string(), " has no ", item.first);
      taken.emplace_back(*found);
    }
    return taken;
  };
  built.set_weights({}, /*strict=*/false);  // tells the model that its weights change
  load_from_chief(built.module(), read, {.what = "the weights to start from", .strict = true});
}

}  // namespace cohort
