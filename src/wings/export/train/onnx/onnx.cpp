// ONNX: the file of a graph of nodes with its tensors.
#include "base/fail.h"
#include "wings/export/train/formats.h"
#include "wings/export/train/onnx/onnx_graph.h"

namespace cohort::exports {

std::string onnx_bytes(const TracedModel& model) {
  std::string bytes;
  if (!OnnxGraph(model).model().SerializeToString(&bytes)) {
    fail<InvalidArgument>("[export] ", model.name, ": Protobuf cannot write so large an ONNX file");
  }
  return bytes;
}

}  // namespace cohort::exports
