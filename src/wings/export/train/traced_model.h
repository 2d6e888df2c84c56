// TracedModel: a model as one graph of LibTorch's operations, which all formats of files are made from.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <string>

#include "cohort/train/export.h"
#include "wings/export/train/any_batch.h"

namespace cohort::exports {

struct TracedModel {
  std::string name;
  // The modules with their parameters and buffers, which are the model's own tensors. forward() takes the inputs by
  // position; it returns a tensor, or a tuple if there are several outputs.
  torch::jit::Module script;
  // The graph of forward(), whose first input is the module. The types of its values are those of the traced batch.
  std::shared_ptr<torch::jit::Graph> graph;
  NamedTensors inputs;  // the traced batch
  NamedTensors outputs;
  BatchDims batch_dims;   // of the graph's tensors
  bool any_batch = true;  // the first dimension of inputs and outputs may have any size
};

// Traces a model, and compares what was traced with it. With out_of_place no operation of the graph writes to its
// inputs. Throws as export_model() does.
TracedModel trace(const Model& model, const ExportOptions& options, bool out_of_place);

}  // namespace cohort::exports
