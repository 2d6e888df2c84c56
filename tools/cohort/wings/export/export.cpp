// cohort export: writes the model that `cohort train` has trained as a file for inference.
#include "wings/export/export.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>

#include "base/fail.h"
#include "base/regular_file.h"
#include "bytes_text.h"
#include "cohort/models/experiment.h"
#include "cohort/train/export.h"
#include "models/run/params_file.h"

namespace cohort::cli {

namespace {

struct ExportFlags {
  std::filesystem::path model_dir;
  std::filesystem::path output;
  std::filesystem::path weights;
  std::string name;
  int64_t batch_size = 0;
};

void check(const ExportFlags& flags) {
  if (flags.model_dir.empty()) fail<InvalidArgument>("[export] --model_dir is missing: the folder of a training");
  if (flags.output.empty()) fail<InvalidArgument>("[export] --output is missing: a file, .pt, .onnx or .mlir");
}

// Returns a few rows of the inputs. Random numbers tell more of a model than zeros do.
Example example_of(const Example& batch) {
  const auto filled = [](const torch::Tensor& input) {
    return input.is_floating_point() ? at::rand(input.sizes(), input.options()) : input.contiguous();
  };
  const Example rows = batch.rows(0, std::min<int64_t>(batch.size(), 2));
  Example example;
  if (rows.x.defined()) example.x = filled(rows.x);
  for (const auto& [name, input] : rows.inputs) example.inputs.emplace_back(name, filled(input));
  return example;
}

std::filesystem::path weights_of(const ExportFlags& flags) {
  if (!flags.weights.empty()) return flags.weights;
  std::filesystem::path file = flags.model_dir / "model.safetensors";
  if (std::filesystem::exists(file)) return file;
  fail<NotFound>("[export] there is no ", file.string(), ", which a training writes at its end; --weights=FOLDER ",
                 "takes a checkpoint, such as ", (flags.model_dir / "ckpt-100").string());
}

int run_export(const ExportFlags& flags) {
  check(flags);
  const std::filesystem::path params = flags.model_dir / "params.yaml";
  const auto text = read_regular_file(params, "export");
  if (!text) fail<NotFound>("[export] there is no ", params.string(), ", which cohort train writes");
  const std::string name = experiment_of_params(*text);
  if (name.empty())
    fail<InvalidArgument>("[export] ", params.string(), " does not name its experiment in its first line");
  const std::filesystem::path weights = weights_of(flags);

  ExperimentConfig experiment = find_experiment(name).make();
  Config config([&](ConfigFields& fields) { experiment.describe(fields); });
  config.apply_yaml(*text, params.string());
  experiment.task->complete(config);
  config.lock();
  const Example batch = experiment.task->example_batch();
  if (!batch.input().defined()) {
    fail<InvalidArgument>("[export] the task of ", name, " does not tell what its batches look like, wanted one with ",
                          "Task::example_batch()");
  }
  const Strategy strategy = OneDeviceStrategy("/CPU:0");
  const auto scope = strategy.scope();
  Model model = experiment.task->build_model();
  model.load_weights(weights);
  export_model(
      model, flags.output,
      {.example = example_of(batch), .batch_size = flags.batch_size, .name = flags.name.empty() ? name : flags.name});
  std::cout << "exported    " << flags.output.string() << ", "
            << bytes_text(static_cast<int64_t>(std::filesystem::file_size(flags.output))) << ", the weights of "
            << weights.string() << "\n";
  return 0;
}

}  // namespace

Command add_export(CLI::App& app) {
  const auto flags = std::make_shared<ExportFlags>();
  app.add_option("--model_dir", flags->model_dir, "the folder of a training (params.yaml, model.safetensors)");
  app.add_option("--output", flags->output,
                 "the file; its suffix is the format: .pt (TorchScript), .onnx or .mlir (StableHLO)");
  app.add_option("--weights", flags->weights,
                 "a safetensors file or the folder of a checkpoint; not given: model.safetensors of --model_dir");
  app.add_option("--batch_size", flags->batch_size,
                 "the size of all batches; 0 (not given) is any size, which .mlir does not take");
  app.add_option("--name", flags->name, "the model's name in the file; not given: the experiment's");
  return [flags] { return run_export(*flags); };
}

}  // namespace cohort::cli
