#include "cohort/train/export.h"

#include "base/atomic_file.h"
#include "base/extension.h"
#include "base/fail.h"
#include "train/model/stablehlo_writer.h"
#include "wings/export/train/formats.h"

namespace cohort {

namespace {

struct FileFormat {
  const char* suffix;
  bool out_of_place;  // it has no operations that write to their inputs
  std::string (*bytes)(const exports::TracedModel& model);
};

constexpr FileFormat kFormats[] = {
    {.suffix = ".pt", .out_of_place = false, .bytes = exports::torchscript_bytes},
    {.suffix = ".onnx", .out_of_place = true, .bytes = exports::onnx_bytes},
};

// Returns a module of StableHLO, which another wing writes.
std::string stablehlo_bytes(const Model& model, const ExportOptions& options, const std::string& file) {
  const std::string speaker = "[export] " + file;
  const auto& writer = extension_of<StableHloWriter>("xla", speaker + " is to be StableHLO");
  if (options.batch_size == 0) {
    fail<InvalidArgument>(speaker, ": batch_size is 0, wanted that of all batches: StableHLO has fixed sizes");
  }
  const exports::TracedModel traced = exports::trace(model, options, /*out_of_place=*/false);
  return writer.write(traced.name, *traced.graph, traced.script._ivalue(), traced.inputs, traced.outputs);
}

std::string bytes_of(const Model& model, const std::filesystem::path& file, const ExportOptions& options) {
  const std::string suffix = file.extension().string();
  if (suffix == ".mlir") return stablehlo_bytes(model, options, file.string());
  for (const FileFormat& each : kFormats) {
    if (suffix == each.suffix) return each.bytes(exports::trace(model, options, each.out_of_place));
  }
  fail<InvalidArgument>("[export] ", file.string(), ": the suffix is \"", suffix,
                        "\", wanted .pt (TorchScript), .onnx or .mlir (StableHLO)");
}

}  // namespace

void export_model(const Model& model, const std::filesystem::path& file, const ExportOptions& options) {
  const std::string bytes = bytes_of(model, file, options);
  AtomicFile out(file);
  out.write(bytes);
  out.commit();
}

}  // namespace cohort
