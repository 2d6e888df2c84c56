// A module written by hand and the same as TorchScript, as Python would save it.
#pragma once

#include <torch/script.h>
#include <torch/torch.h>

namespace cohort::testing {

constexpr int64_t kScriptFeatures = 12;
constexpr int64_t kScriptClasses = 5;

constexpr int64_t kScriptHidden = 9;

struct ScriptedNetImpl : torch::nn::Module {
  ScriptedNetImpl() {
    hidden = register_module("hidden", torch::nn::Linear(kScriptFeatures, kScriptHidden));
    norm = register_module("norm", torch::nn::BatchNorm1d(kScriptHidden));
    head = register_module("head", torch::nn::Linear(kScriptHidden, kScriptClasses));
    scale = register_parameter("scale", torch::ones({}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    // A batch norm of one example or none has nothing to learn from.
    torch::Tensor y = hidden->forward(x);
    if (x.size(0) > 1) y = norm->forward(y);
    return head->forward(torch::tanh(y)) * scale;
  }
  torch::nn::Linear hidden{nullptr}, head{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::Tensor scale;
};
TORCH_MODULE(ScriptedNet);

inline torch::jit::Module script_part(const char* name, const torch::nn::Module& like, const char* code) {
  torch::jit::Module script(name);
  script.register_attribute("training", c10::BoolType::get(), true);
  for (const auto& item : like.named_parameters(/*recurse=*/false)) {
    script.register_parameter(item.key(), item.value().detach().clone().set_requires_grad(true), /*is_buffer=*/false);
  }
  for (const auto& item : like.named_buffers(/*recurse=*/false))
    script.register_buffer(item.key(), item.value().clone());
  script.define(code);
  return script;
}

// The same module as TorchScript, with the same values.
inline torch::jit::Module script_of(const ScriptedNet& net) {
  constexpr const char* kLinear = "def forward(self, x):\n  return torch.linear(x, self.weight, self.bias)\n";
  constexpr const char* kNorm =
      "def forward(self, x):\n"
      "  return torch.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var, self.training, 0.1, "
      "1e-5, True)\n";
  torch::jit::Module script("__torch__.Net");
  script.register_attribute("training", c10::BoolType::get(), true);
  script.register_parameter("scale", net->scale.detach().clone().set_requires_grad(true), /*is_buffer=*/false);
  script.register_module("hidden", script_part("__torch__.Linear", *net->hidden, kLinear));
  script.register_module("norm", script_part("__torch__.BatchNorm1d", *net->norm, kNorm));
  script.register_module("head", script_part("__torch__.Linear", *net->head, kLinear));
  script.define(R"(
def forward(self, x):
  y = self.hidden.forward(x)
  if x.size(0) > 1:
    y = self.norm.forward(y)
  return self.head.forward(torch.tanh(y)) * self.scale
)");
  script.train(true);
  return script;
}

inline ScriptedNet net_by_hand() {
  torch::manual_seed(7);
  ScriptedNet made;
  made->to(torch::kDouble);
  return made;
}

}  // namespace cohort::testing
