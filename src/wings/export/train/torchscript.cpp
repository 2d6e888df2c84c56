// TorchScript: the archive that torch::jit::load() and torch.jit.load() read.
#include <sstream>
#include <unordered_map>

#include "device/identity.h"
#include "wings/export/train/formats.h"

namespace cohort::exports {

namespace {

// Gives the script tensors with storages of their own. A trained model has its parameters in one, of which LibTorch
// writes all, and whose tensors its deepcopy() takes for one.
void own_storages(torch::jit::Module script, std::unordered_map<const void*, torch::Tensor>& copies) {
  for (const auto& each : script.named_attributes(/*recurse=*/false)) {
    if (!each.value.isTensor()) continue;
    const torch::Tensor& original = each.value.toTensor();
    torch::Tensor& copy = copies[tensor_id(original)];
    if (!copy.defined()) copy = original.detach().clone().set_requires_grad(original.requires_grad());
    script.setattr(each.name, copy);
  }
  for (const auto& child : script.named_children()) own_storages(child.value, copies);
}

}  // namespace

// In memory first: LibTorch's writer ends the program where a disk is full.
std::string torchscript_bytes(const TracedModel& model) {
  std::unordered_map<const void*, torch::Tensor> copies;
  own_storages(model.script, copies);
  std::ostringstream bytes;
  model.script.save(bytes);
  return std::move(bytes).str();
}

}  // namespace cohort::exports
