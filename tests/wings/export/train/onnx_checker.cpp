#include "tests/wings/export/train/onnx_checker.h"

#include <onnx/checker.h>
#include <onnx/onnx_pb.h>
#include <onnx/shape_inference/implementation.h>

namespace cohort::export_test {

bool has_onnx_checker() {
  return true;
}

std::string check_onnx(const std::string& bytes) {
  onnx::ModelProto model;
  if (!model.ParseFromString(bytes)) return "no ONNX";
  try {
    onnx::checker::check_model(model);
    onnx::shape_inference::InferShapes(model, onnx::OpSchemaRegistry::Instance(),
                                       onnx::ShapeInferenceOptions(/*check_type=*/true, /*strict_mode=*/1));
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

}  // namespace cohort::export_test
