// A module from a file of Python's, taken apart into modules of LibTorch's C++ front end: one for each submodule, with
// the same names and the very tensors of the script. So everything that works on modules (mirroring, optimizers,
// weights, freezing) finds parameters and buffers where it looks for them, and what is written there is what the script
// computes with.
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <sstream>
#include <unordered_map>

#include "base/atomic_file.h"
#include "base/fail.h"
#include "cohort/strategy.h"
#include "cohort/train/script_module.h"
#include "device/identity.h"

namespace cohort {

namespace {

// The name of the class in Python, without its modules.
std::string class_of(const torch::jit::Module& module) {
  const auto name = module.type()->name();
  return name ? name->name() : "ScriptModule";
}

// Gives a copy tensors of its own: LibTorch's deepcopy() makes one tensor of all that lie in the same storage.
void copy_tensors(const torch::jit::Module& from, torch::jit::Module to,
                  std::unordered_map<const void*, torch::Tensor>& copies) {
  for (const auto& each : from.named_attributes(/*recurse=*/false)) {
    if (!each.value.isTensor() || !each.value.toTensor().defined()) continue;
    const torch::Tensor& original = each.value.toTensor();
    torch::Tensor& copy = copies[tensor_id(original)];
    if (!copy.defined()) copy = original.detach().clone().set_requires_grad(original.requires_grad());
    to.setattr(each.name, copy);
  }
  for (const auto& child : from.named_children()) copy_tensors(child.value, to.attr(child.name).toModule(), copies);
}

// Returns a module with the same code and tensors of its own: leaves of autograd, as the original's are.
std::shared_ptr<torch::jit::Module> copy_of(const torch::jit::Module& module) {
  const torch::NoGradGuard no_grad;
  auto copy = std::make_shared<torch::jit::Module>(module.deepcopy());
  std::unordered_map<const void*, torch::Tensor> copies;  // by the original
  copy_tensors(module, *copy, copies);
  return copy;
}

// Calls forward as it is written. LibTorch would watch the first calls and then run other code, which rounds in another
// way: a training that is resumed would begin with the first kind again, and end with other bits.
c10::IValue call(torch::jit::Module& script, const std::vector<torch::Tensor>& inputs) {
  const torch::jit::GraphOptimizerEnabledGuard as_written(false);
  return script.forward({inputs.begin(), inputs.end()});
}

[[noreturn]] void refuse_output(const std::string& name, const c10::IValue& output, const char* wanted) {
  fail<InvalidArgument>("[module] ", name, ": forward returned ", output.tagKind(), ", wanted ", wanted);
}

}  // namespace

ScriptModule::ScriptModule(const torch::jit::Module& module) : ScriptModule(copy_of(module)) {}

ScriptModule::ScriptModule(std::shared_ptr<torch::jit::Module> script)
    : torch::nn::Module(class_of(*script)), script_(std::move(script)) {
  // Before there are children, which keep the modes that the file has for them.
  torch::nn::Module::train(script_->is_training());
  for (const auto& parameter : script_->named_parameters(/*recurse=*/false)) {
    register_parameter(parameter.name, parameter.value, parameter.value.requires_grad());
  }
  for (const auto& buffer : script_->named_buffers(/*recurse=*/false)) register_buffer(buffer.name, buffer.value);
  for (const auto& child : script_->named_children()) {
    auto part = std::make_shared<torch::jit::Module>(child.value);
    register_module(child.name, std::shared_ptr<ScriptModule>(new ScriptModule(std::move(part))));
  }
}

std::shared_ptr<ScriptModule> ScriptModule::load(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) fail<NotFound>("[module] ", file.string(), ": there is no such file");
  try {
    auto script = std::make_shared<torch::jit::Module>(torch::jit::load(file.string(), torch::Device(torch::kCPU)));
    return std::shared_ptr<ScriptModule>(new ScriptModule(std::move(script)));
  } catch (const c10::Error& error) {
    fail<DataLoss>("[module] ", file.string(),
                   ": is no module that torch.jit.save() wrote: ", error.what_without_backtrace());
  }
}

// The children are modules of their own, whose mode the base class sets by their train().
void ScriptModule::train(bool on) {
  torch::nn::Module::train(on);
  // A module that was traced or frozen may have one mode only.
  if (script_->type()->findAttributeSlot("training")) script_->setattr("training", on);
}

torch::Tensor ScriptModule::forward(const std::vector<torch::Tensor>& inputs) {
  const c10::IValue output = call(*script_, inputs);
  if (!output.isTensor()) refuse_output(name(), output, "a tensor");
  return output.toTensor();
}

std::vector<std::pair<std::string, torch::Tensor>> ScriptModule::outputs(const std::vector<torch::Tensor>& inputs) {
  constexpr const char* kWanted = "a tensor, a tuple or a list of tensors, or tensors by name";
  const c10::IValue output = call(*script_, inputs);
  std::vector<std::pair<std::string, torch::Tensor>> list;
  const auto add = [&](std::string of, const c10::IValue& value) {
    if (!value.isTensor()) refuse_output(name(), output, kWanted);
    list.emplace_back(std::move(of), value.toTensor());
  };
  if (output.isTensor()) {
    add("", output);
  } else if (output.isTuple()) {
    for (const c10::IValue& each : output.toTupleRef().elements()) add("", each);
  } else if (output.isList()) {
    for (const c10::IValue& each : output.toListRef()) add("", each);
  } else if (output.isGenericDict()) {
    for (const auto& entry : output.toGenericDict()) {
      if (!entry.key().isString()) refuse_output(name(), output, kWanted);
      add(entry.key().toStringRef(), entry.value());
    }
  } else {
    refuse_output(name(), output, kWanted);
  }
  return list;
}

bool ScriptModule::has_one_output() const {
  const auto& returns = script_->get_method("forward").function().getSchema().returns();
  return returns.size() == 1 && returns.front().type()->isSubtypeOf(*c10::TensorType::get());
}

const torch::jit::Module& ScriptModule::script() const {
  return *script_;
}

void ScriptModule::save_script(const std::filesystem::path& file) const {
  std::ostringstream bytes;
  script_->save(bytes);
  AtomicFile out(file);
  out.write(bytes.str());
  out.commit();
}

Mirrored<std::shared_ptr<ScriptModule>> Strategy::mirror(const torch::jit::Module& module) const {
  return mirror([&] { return std::make_shared<ScriptModule>(module); });
}

}  // namespace cohort
