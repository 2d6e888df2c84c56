#include "wings/function/arguments.h"

#include "base/fail.h"
#include "cohort/device.h"
#include "cohort/replica.h"
#include "device/backend.h"

namespace cohort {

namespace {

class Collector final : public detail::FunctionVisitor {
 public:
  explicit Collector(FunctionArguments& arguments) : arguments_(arguments) {}

  void tensor(torch::Tensor& tensor) override {
    note(type_of(tensor));
    if (tensor.defined()) arguments_.tensors.push_back(tensor);
  }
  void spec(const TensorSpec& spec, torch::Tensor& tensor) override {
    note(type_of(spec, current_device()));
    arguments_.tensors.push_back(tensor);
  }
  void value(std::string text) override {
    ArgumentType type;
    type.value = std::move(text);
    note(std::move(type));
  }
  void object(const void* address, std::shared_ptr<const void> keep) override {
    value(c10::str("object ", address));
    arguments_.objects.push_back(std::move(keep));
  }
  void replicas() override { arguments_.of_replicas = true; }

  // The device without tensors to tell it.
  static torch::Device current_device() {
    const Replica* replica = Replica::current();
    return replica == nullptr ? current_torch_device() : replica->device();
  }

 private:
  void note(ArgumentType type) { arguments_.signature.arguments.push_back(std::move(type)); }

  FunctionArguments& arguments_;
};

// Names the parts of the arguments, which only messages need.
class Places final : public detail::FunctionVisitor {
 public:
  explicit Places(std::vector<std::string>& places) : places_(places) {}
  void tensor(torch::Tensor& /*tensor*/) override { note(); }
  void spec(const TensorSpec& /*spec*/, torch::Tensor& /*tensor*/) override { note(); }
  void value(std::string /*text*/) override { note(); }
  void object(const void* /*address*/, std::shared_ptr<const void> /*keep*/) override { note(); }
  void enter(const char* member, std::size_t index) override {
    if (path_.empty()) {
      path_.push_back(c10::str(member, " ", index));
    } else {
      path_.push_back(path_.back() + (member == nullptr ? c10::str("[", index, "]") : c10::str(".", member)));
    }
  }
  void leave() override { path_.pop_back(); }

 private:
  void note() { places_.push_back(path_.back()); }

  std::vector<std::string>& places_;
  std::vector<std::string> path_;
};

// A device that records comes before one that captures, and that before the host.
void choose_device(detail::FunctionCall& call, FunctionArguments& arguments, const std::string& name) {
  arguments.device = Collector::current_device();
  if (arguments.of_replicas) return;  // their devices are those of the functions that it gives to run()
  bool found = false;
  for (std::size_t i = 0; i < arguments.signature.arguments.size(); ++i) {
    const ArgumentType& type = arguments.signature.arguments[i];
    if (!type.is_tensor || type.dtype == torch::ScalarType::Undefined) continue;
    const bool records = type.device.type() == torch::kXLA;
    if (found && arguments.records && records && type.device != arguments.device) {
      fail<InvalidArgument>("[function] ", name, ": ", place_of(call, i), " is on ", type.device,
                            " and another one on ", arguments.device, ", wanted all on one device");
    }
    const bool captures = !records && cohort::captures(type.device);
    if (found && !records && (!captures || arguments.captures || arguments.records)) continue;
    arguments.device = type.device;
    arguments.records = records;
    arguments.captures = captures;
    found = true;
  }
  if (found) return;
  arguments.records = arguments.device.type() == torch::kXLA;
  arguments.captures = !arguments.records && cohort::captures(arguments.device);
}

}  // namespace

FunctionArguments arguments_of(detail::FunctionCall& call, const std::string& name) {
  FunctionArguments arguments;
  arguments.signature.types = call.types();
  arguments.signature.grad_mode = at::GradMode::is_enabled();
  Collector collector(arguments);
  call.visit_arguments(collector);
  choose_device(call, arguments, name);
  // All replicas share the signatures.
  const Replica* replica = Replica::current();
  for (ArgumentType& type : arguments.signature.arguments) {
    if (replica == nullptr || !type.is_tensor || type.device != replica->device()) continue;
    type.device = torch::Device(type.device.type());
  }
  arguments.given = arguments.signature;
  return arguments;
}

std::string place_of(detail::FunctionCall& call, std::size_t i) {
  std::vector<std::string> all;
  Places places(all);
  call.visit_arguments(places);
  return all.at(i);
}

}  // namespace cohort
