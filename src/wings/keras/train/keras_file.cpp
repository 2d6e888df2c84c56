// load_model() and save_model().
#include "cohort/train/keras_file.h"

#include <set>

#include "base/access.h"
#include "base/atomic_file.h"
#include "base/regular_file.h"
#include "strategy/core.h"
#include "train/layers/layered_module.h"
#include "train/model/model_state.h"
#include "wings/keras/train/archive.h"
#include "wings/keras/train/compiled.h"
#include "wings/keras/train/hdf5.h"
#include "wings/keras/train/model_file.h"
#include "wings/keras/train/optimizers.h"
#include "wings/keras/train/vocabularies.h"
#include "wings/keras/train/write_compiled.h"
#include "wings/keras/train/write_model.h"

namespace cohort {

namespace {

constexpr int kMaxJsonDepth = 64;
constexpr const char* kKerasVersion = "3.15.1";

Json parse_json(const std::string& text, const FilePlace& place) {
  const auto within = [&](int depth, Json::parse_event_t /*event*/, Json& /*parsed*/) {
    if (depth > kMaxJsonDepth) place.damaged("has values in more than ", kMaxJsonDepth, " others");
    return true;
  };
  return Json::parse(text, within);
}

void require_version(const std::string& text, const FilePlace& place) {
  const std::string version = text_member(parse_json(text, place), "keras_version", place);
  if (version.rfind("3.", 0) != 0) place.unsupported("Keras ", brief(version), " is not supported, only Keras 3");
}

void load_weights_of(const Model& model, const std::vector<BoundWeight>& bound, const FileTensors& file,
                     const FilePlace& place) {
  const FileTensors ours = by_name(model.weights());
  NamedTensors values;
  std::set<std::string> used;
  for (const BoundWeight& each : bound) {
    const auto found = file.find(each.path);
    const FilePlace here = place / ("\"" + each.path + "\"");
    if (found == file.end()) here.damaged("is not there; the model has ", each.first);
    std::vector<torch::Tensor> tensors = from_file(each, found->second, ours.at(each.first), here);
    values.emplace_back(each.first, tensors.front());
    if (tensors.size() > 1) values.emplace_back(each.second, tensors.back());
    used.insert(each.path);
  }
  for (const auto& [path, tensor] : file) {
    const bool is_weight = path.rfind("optimizer/", 0) != 0 && path.rfind("assets/", 0) != 0;
    if (is_weight && used.count(path) == 0) {
      (place / ("\"" + path + "\"")).damaged("belongs to no weight of the model");
    }
  }
  model.set_weights(values, /*strict=*/false);
}

// Returns which weights of a file are which of a model's. NotFound: a weight of the model has no place in a file.
std::vector<BoundWeight> bound_weights_of(const Model& model) {
  const ModelState& state = *Access::state(model);
  std::vector<BoundWeight> bound = bind_model(state, "");
  std::set<std::string> known;
  for (const BoundWeight& each : bound) known.insert({each.first, each.second});
  for (const auto& [name, tensor] : model.weights()) {
    // Keras has neither the count of batches nor the second bias of an LSTM, which is zeros.
    const std::string_view last = std::string_view(name).substr(name.rfind('.') + 1);
    if (known.count(name) != 0 || last == "num_batches_tracked" || last == "bias_hh_l0") continue;
    fail<NotFound>("[keras] ", state.name(), ": the weight \"", name, "\" has no place in Keras' files");
  }
  return bound;
}

// Returns the weights as files have them.
NamedTensors weights_in_file(const Model& model, const std::vector<BoundWeight>& bound) {
  const FileTensors ours = by_name(model.weights());
  NamedTensors datasets;
  for (const BoundWeight& each : bound) {
    const torch::Tensor second = each.second.empty() ? torch::Tensor() : ours.at(each.second);
    datasets.emplace_back(each.path, to_file(each.layout, each.parts, ours.at(each.first), second));
  }
  return datasets;
}

// Fails unless a model is built and consists of layers.
void require_layers(const Model& model, const char* what) {
  const ModelState& state = *Access::state(model);
  state.require_built(what);
  if (dynamic_cast<const LayeredModule*>(state.module().copies().front().get()) != nullptr) return;
  fail<NotFound>("[keras] ", state.name(), ": ", what,
                 ": the model is a module of the program's; Keras' files hold layers");
}

Model load(const KerasArchive& archive, const LoadModelOptions& options, const std::string& file) {
  const FilePlace place("[keras] " + file);
  // All models of the file are parts of one, so they are made under one strategy.
  const Strategy strategy = current_strategy();
  const auto scope = strategy.scope();
  require_version(archive.metadata, place / "metadata.json");
  const Json root = parse_json(archive.config, place / "config.json");
  const FilePlace config = place / "config.json";
  const FilePlace weights = place / "model.weights.h5";
  FileTensors tensors = read_hdf5(archive.weights, weights.text());
  if (tensors.lower_bound("assets/") != tensors.lower_bound("assets0")) {
    weights.damaged("it has a group \"assets\", which Keras writes elsewhere");
  }
  tensors.merge(read_vocabularies(archive.vocabularies, place));
  const ModelInFile read = read_model(root, tensors, "", 0, config);
  require_used(tensors, read.vocabularies, place);
  const Model& model = *read.model;
  load_weights_of(model, read.weights, tensors, weights);
  const Json compiled = root.value("compile_config", Json());
  const std::optional<CompileOptions> compile =
      options.compile ? compile_options(compiled, read.outputs, config / "compile_config") : std::nullopt;
  if (compile.has_value()) {
    Model(model).compile(*compile);
    load_optimizer(model, tensors, read.weights, weights);
  }
  return model;
}

}  // namespace

Model load_model(const std::filesystem::path& file, const LoadModelOptions& options) {
  const KerasArchive archive = read_keras_archive(file);
  try {
    return load(archive, options, file.string());
  } catch (const Json::exception& error) {
    fail<DataLoss>("[keras] ", file.string(), ": is damaged: ", error.what());
  } catch (const InvalidArgument& error) {
    const std::string said = error.what(), opening = "[keras] " + file.string() + ": ";
    fail<InvalidArgument>(said.rfind(opening, 0) == 0 ? "" : opening, said);
  }
}

void save_model(const Model& model, const std::filesystem::path& file, const SaveModelOptions& options) {
  const std::shared_ptr<ModelState>& state = Access::state(model);
  state->require_built("save_model");
  const FilePlace place("[keras] " + state->name());
  state->finish_steps();
  require_masks_of_keras(*state, place);
  WrittenModel written = write_model(*state, place);
  const std::vector<BoundWeight> weights = bound_weights_of(model);
  NamedTensors datasets = weights_in_file(model, weights);
  const std::optional<CompileOptions>& compiled = state->compile_options();
  if (options.compile && compiled.has_value()) {
    written.object["compile_config"] = write_compiled(*compiled, written.outputs, place / "compile()");
    for (auto& variable : write_optimizer(model, weights, place / "optimizer")) {
      datasets.push_back(std::move(variable));
    }
  }
  Access::core(model.strategy())->on_chief("save_model", [&] {
    write_keras_archive(file, {.config = written.object.dump(),
                               .metadata = Json{{"keras_version", kKerasVersion}}.dump(),
                               .weights = write_hdf5(datasets)});
  });
}

void load_keras_weights(const Model& model, const std::filesystem::path& file) {
  require_layers(model, "load_keras_weights");
  const FilePlace place("[keras] " + file.string());
  std::string bytes;
  if (file.extension() == ".keras") {
    bytes = read_keras_archive(file).weights;
  } else if (std::optional<std::string> alone = read_regular_file(file, "keras")) {
    bytes = *std::move(alone);
  } else {
    place.unsupported("there is no such file");
  }
  load_weights_of(model, bound_weights_of(model), read_hdf5(bytes, place.text()), place);
}

void save_keras_weights(const Model& model, const std::filesystem::path& file) {
  require_layers(model, "save_keras_weights");
  Access::state(model)->finish_steps();
  const NamedTensors datasets = weights_in_file(model, bound_weights_of(model));
  Access::core(model.strategy())->on_chief("save_keras_weights", [&] {
    const std::string bytes = write_hdf5(datasets);
    AtomicFile target(file);
    target.write(bytes);
    target.commit();
  });
}

}  // namespace cohort
