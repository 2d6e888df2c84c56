// Written models against PyTorch, ONNX's checker and ONNX Runtime, for batches of several sizes.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cohort/train/export.h"
#include "tests/support/files.h"
#include "tests/wings/export/train/export_cases.h"
#include "tests/wings/export/train/onnx_checker.h"

namespace cohort::export_test {
namespace {

using cohort::testing::read_file;
using cohort::testing::TemporaryFolder;
using nlohmann::json;

constexpr int64_t kSizes[] = {1, 3, 64};

json to_json(const torch::Tensor& tensor) {
  const torch::ScalarType dtype = tensor.scalar_type();
  const char* const name = dtype == torch::kLong ? "int64" : dtype == torch::kInt ? "int32" : "float32";
  const torch::Tensor wide = tensor.to(torch::kDouble).contiguous();
  const std::vector<double> values(wide.data_ptr<double>(), wide.data_ptr<double>() + wide.numel());
  return {{"dtype", name}, {"shape", tensor.sizes().vec()}, {"values", values}};
}

json to_json(const NamedTensors& tensors) {
  json all = json::object();
  for (const auto& [name, tensor] : tensors) all[name] = to_json(tensor);
  return all;
}

void write_model(const Model& model, const std::filesystem::path& file, const ExportOptions& options) {
  try {
    export_model(model, file, options);
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
}

// Writes the cases with their files, and what they should give.
void write_cases(const std::filesystem::path& folder, const std::vector<ExportCase>& cases, bool stablehlo) {
  json list = json::array();
  for (const ExportCase& each : cases) {
    SCOPED_TRACE(each.name);
    const Model model = each.make();
    json described = {{"name", each.name}, {"tolerance", each.tolerance}, {"any_batch", true}, {"batches", kSizes}};
    for (const char* const suffix : {".pt", ".onnx"}) {
      write_model(model, folder / (each.name + suffix), {.example = each.example});
    }
    const std::string wrong = check_onnx(read_file(folder / (each.name + ".onnx")));
    EXPECT_EQ(wrong, "");
    for (const int64_t size : kSizes) {
      const std::string of_size = each.name + "." + std::to_string(size);
      if (stablehlo) {
        write_model(model, folder / (of_size + ".mlir"), {.example = each.example, .batch_size = size});
      }
      const NamedTensors inputs = rows_of(each.example, size);
      const bool has_x = each.example.x.defined();
      const NamedTensors outputs = has_x ? NamedTensors{{"output", model(inputs.front().second)}} : model(inputs);
      std::ofstream(folder / (of_size + ".json")) << json{{"inputs", to_json(inputs)}, {"outputs", to_json(outputs)}};
      for (const auto& [list_of, tensors] : {std::pair{"inputs", inputs}, std::pair{"outputs", outputs}}) {
        described[list_of] = json::array();
        for (const auto& [name, tensor] : tensors) described[list_of].push_back(name);
      }
    }
    list.push_back(described);
  }
  std::ofstream(folder / "cases.json") << list;
}

bool imports(const std::string& python, const std::string& module) {
  return std::system((python + " -c 'import " + module + "' > /dev/null 2>&1").c_str()) == 0;
}

// Returns the Python that a variable of the environment names, or the first one of the path.
std::string python_of(const char* variable) {
  const char* const given = std::getenv(variable);
  return given == nullptr ? "python3" : given;
}

// What tests of several cases share.
class FormatsTest : public ::testing::TestWithParam<std::vector<ExportCase> (*)()> {
 protected:
  static void expect_others_agree(const std::vector<ExportCase>& cases) {
    const TemporaryFolder folder;
    const std::string jax_python = python_of("COHORT_JAX_PYTHON"), onnx_python = python_of("COHORT_ONNX_PYTHON");
    const bool has_jax = imports(jax_python, "jax");
    write_cases(folder.path(), cases, /*stablehlo=*/has_jax);
    const auto expect_agreement = [&](const std::string& python, const std::string& program) {
      const std::string script = " tests/wings/export/train/reference.py ";
      EXPECT_EQ(std::system((python + script + program + " " + folder.path().string()).c_str()), 0);
    };
    if (imports("/usr/bin/python3", "torch")) {
      expect_agreement("/usr/bin/python3", "torch");
    } else {
      std::cout << "/usr/bin/python3 has no torch (Debian's python3-torch): TorchScript is not compared\n";
    }
    if (imports(onnx_python, "onnxruntime")) {
      expect_agreement(onnx_python, "onnxruntime");
    } else {
      std::cout << onnx_python << " has no onnxruntime (COHORT_ONNX_PYTHON names another): ONNX is not compared\n";
    }
    if (has_jax) {
      expect_agreement(jax_python, "jax");
    } else {
      std::cout << jax_python << " has no jax (COHORT_JAX_PYTHON names another): StableHLO is not compared with JAX\n";
    }
    if (!has_onnx_checker()) std::cout << "the build has no libonnx (Debian's libonnx-dev): ONNX is not checked\n";
  }
};

TEST_P(FormatsTest, OthersComputeWhatTheModelDoes) {
  expect_others_agree(GetParam()());
}

INSTANTIATE_TEST_SUITE_P(Activations, FormatsTest, ::testing::Values(activation_cases));
INSTANTIATE_TEST_SUITE_P(Layers, FormatsTest, ::testing::Values(layer_cases));
INSTANTIATE_TEST_SUITE_P(Sequences, FormatsTest, ::testing::Values(sequence_cases));
INSTANTIATE_TEST_SUITE_P(Modules, FormatsTest, ::testing::Values(module_cases));
INSTANTIATE_TEST_SUITE_P(Zoo, FormatsTest, ::testing::Values(zoo_cases));

}  // namespace
}  // namespace cohort::export_test
