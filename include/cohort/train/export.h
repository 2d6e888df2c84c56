// Models as files for inference: TorchScript, which LibTorch and PyTorch read, ONNX, which ONNX Runtime and others
// read, and StableHLO, which JAX and XLA's devices run.
//
//   cohort::export_model(model, "net.onnx", {.example = batch});
//   cohort::export_model(model, "net.mlir", {.example = batch, .batch_size = 64});
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "cohort/example.h"
#include "cohort/train/model.h"

namespace cohort {

struct ExportOptions {
  // A batch of one example or more, of which the inputs are read. It says how many inputs the model has, their names,
  // shapes and dtypes; needed. Values matter only where the model checks them, as indices of an embedding.
  Example example = {};
  // The size of the batches that the file takes; 0: any size, which StableHLO does not have. Sizes of other dimensions
  // are those of `example`.
  int64_t batch_size = 0;
  std::string name = {};  // the model's name in the file; empty: Model::name()
};

// Writes a model as it predicts: in evaluation mode, in the dtype of its parameters, whatever CompileOptions::precision
// says. The suffix chooses the format: ".pt" is TorchScript, ".onnx" is ONNX (opset 17), ".mlir" is the text of a
// StableHLO module. The file appears whole or not at all. Before it is written, what it computes is compared with the
// model for batches of several sizes. The model stays as it is. To be called outside of Strategy::run().
// InvalidArgument: the suffix is unknown; the example has no inputs or no rows; the model reads values on the host; it
// goes another way for some sizes of the batch (batch_size helps then); ".mlir" comes without a batch_size; the format
// has no form for an operation or a dtype, where the message names the operation and the module that it belongs to.
// FailedPrecondition: the model is not built, its parameters are not on CPUs, or no replica has the whole model.
// Unimplemented: ".mlir" in a build without the wing xla. NotFound, Unavailable: the file cannot be written.
void export_model(const Model& model, const std::filesystem::path& file, const ExportOptions& options);

}  // namespace cohort
