// Models that the tests write as files, and compare with what others compute from these.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cohort/train/model.h"

namespace cohort::export_test {

struct ExportCase {
  std::string name;
  std::function<Model()> make;  // a model that is built
  Example example;
  double tolerance = 1e-5;
};

// Returns a model of layers for examples of this shape.
ExportCase layers_case(const std::string& name, const std::vector<Layer>& layers, const Shape& shape);
// The same for indices below `below`.
ExportCase indices_case(const std::string& name, const std::vector<Layer>& layers, const Shape& shape, int64_t below);

// Gives all parameters and statistics values that none starts with.
void draw_weights(const Model& model);

// Returns the inputs of a batch of so many examples.
NamedTensors rows_of(const Example& example, int64_t size);

std::vector<ExportCase> activation_cases();
std::vector<ExportCase> layer_cases();
std::vector<ExportCase> sequence_cases();
std::vector<ExportCase> module_cases();  // of LibTorch's modules
std::vector<ExportCase> zoo_cases();

}  // namespace cohort::export_test
