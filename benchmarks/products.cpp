// LibTorch shows its calls to observers. This file is compiled with NDEBUG, as LibTorch is: at::RecordFunction has a
// member more without it, and does not show the arguments.
#include "products.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "ops/matrix_product.h"

namespace cohort::bench {

namespace {

constexpr std::array<std::string_view, 6> kProducts{"aten::mm",      "aten::addmm",       "aten::bmm",
                                                    "aten::baddbmm", "aten::convolution", "aten::convolution_backward"};

// Where the calls of this thread are noted; null: nowhere. An observer of LibTorch is a plain function.
thread_local std::vector<ProductCall>* noted = nullptr;

std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function) {
  const auto name = function.operator_name();
  if (noted == nullptr || !name || std::find(kProducts.begin(), kProducts.end(), name->name) == kProducts.end()) {
    return nullptr;
  }
  const auto inputs = function.inputs();
  noted->push_back({c10::Dispatcher::singleton().findSchemaOrThrow(name->name.c_str(), name->overload_name.c_str()),
                    std::vector<c10::IValue>(inputs.begin(), inputs.end())});
  return nullptr;
}

void again(const ProductCall& call) {
  std::vector<c10::IValue> stack = call.arguments;
  call.operation.callBoxed(stack);
}

}  // namespace

std::vector<ProductCall> products_of(const std::function<void()>& work) {
  std::vector<ProductCall> calls;
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(&note).needsInputs(true));
  noted = &calls;
  // A key that nothing has here: where one is excluded, layers leave all to LibTorch (src/ops/plain_operation.h).
  const c10::impl::ExcludeDispatchKeyGuard all_by_libtorch(c10::DispatchKey::TESTING_ONLY_GenericMode);
  work();
  noted = nullptr;
  at::removeCallback(handle);
  return calls;
}

void make_again(const std::vector<ProductCall>& calls) {
  const at::NoGradGuard values_only;
  for (const ProductCall& call : calls) again(call);
}

void make_again_as_layers(const std::vector<ProductCall>& calls) {
  const at::NoGradGuard values_only;
  for (const ProductCall& call : calls) {
    const std::string& name = call.operation.operator_name().name;
    if (name != "aten::mm" && name != "aten::addmm") {
      again(call);
      continue;
    }
    const std::size_t first = name == "aten::mm" ? 0 : 1;
    const at::Tensor a = call.arguments[first].toTensor();
    const at::Tensor b = call.arguments[first + 1].toTensor();
    store_product(at::empty({a.size(0), b.size(1)}, a.options()), a, b);
  }
}

}  // namespace cohort::bench
