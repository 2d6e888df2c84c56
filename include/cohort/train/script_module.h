// ScriptModule: a module that Python wrote and saved.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace torch::jit {
struct Module;
}  // namespace torch::jit

namespace cohort {

// A module that Python wrote and saved (torch.jit.script, torch.jit.save), or torch::jit::script::Module, as a module
// like one's own: its parameters, buffers and submodules stand under Python's names and are the very tensors that the
// script computes with. One that was frozen, or traced in one mode, keeps that mode in train() and eval().
class ScriptModule : public torch::nn::Module {
 public:
  // Takes a copy of the module with tensors of its own.
  explicit ScriptModule(const torch::jit::Module& module);
  // Reads a file, to the CPU. NotFound: there is none; DataLoss: it holds no module.
  static std::shared_ptr<ScriptModule> load(const std::filesystem::path& file);

  // Calls the script's forward with one input or several, in its order. InvalidArgument: it returns no tensor.
  torch::Tensor forward(const torch::Tensor& x) { return forward(std::vector<torch::Tensor>{x}); }
  torch::Tensor forward(const std::vector<torch::Tensor>& inputs);
  // Calls forward and returns all that it returns: a tensor, a tuple or a list of tensors with empty names, or a
  // dictionary of tensors. InvalidArgument: it returns something else.
  std::vector<std::pair<std::string, torch::Tensor>> outputs(const std::vector<torch::Tensor>& inputs);
  // Returns whether forward is declared to return one tensor.
  bool has_one_output() const;

  // Sets training or evaluation mode, of the script, too.
  void train(bool on = true) override;

  // Returns the script, for its other methods and attributes.
  const torch::jit::Module& script() const;
  // Writes the script with the values that the parameters have now, for torch.jit.load(). The file appears whole or not
  // at all.
  void save_script(const std::filesystem::path& file) const;

 private:
  explicit ScriptModule(std::shared_ptr<torch::jit::Module> script);

  std::shared_ptr<torch::jit::Module> script_;
};

}  // namespace cohort
