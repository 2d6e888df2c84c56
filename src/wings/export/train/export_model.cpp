#include "cohort/train/export.h"

#include "base/atomic_file.h"
#include "base/fail.h"
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

const FileFormat& format_of(const std::filesystem::path& file) {
  for (const FileFormat& each : kFormats) {
    if (file.extension() == each.suffix) return each;
  }
  fail<InvalidArgument>("[export] ", file.string(), ": the suffix is \"", file.extension().string(),
                        "\", wanted .pt (TorchScript) or .onnx");
}

}  // namespace

void export_model(const Model& model, const std::filesystem::path& file, const ExportOptions& options) {
  const FileFormat& format = format_of(file);
  const std::string bytes = format.bytes(exports::trace(model, options, format.out_of_place));
  AtomicFile out(file);
  out.write(bytes);
  out.commit();
}

}  // namespace cohort
