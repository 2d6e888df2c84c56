#include "wings/function/signature.h"

#include <sstream>

#include "base/fail.h"
#include "base/short_dtype.h"

namespace cohort {

namespace {

std::string dtype_name(torch::ScalarType dtype) {
  const std::string_view element = short_dtype(dtype);
  return element.empty() ? c10::toString(dtype) : std::string(element);
}

std::string shape_text(const std::optional<std::vector<int64_t>>& shape) {
  if (!shape) return "[...]";
  std::string text = "[";
  for (std::size_t i = 0; i < shape->size(); ++i) {
    if (i > 0) text += ", ";
    text += (*shape)[i] == kAnySize ? "?" : std::to_string((*shape)[i]);
  }
  return text + "]";
}

using Sizes = std::optional<std::vector<int64_t>>;

bool takes(const Sizes& wanted, const Sizes& given) {
  if (!wanted) return true;
  if (!given || given->size() != wanted->size()) return false;
  for (std::size_t i = 0; i < wanted->size(); ++i) {
    if ((*wanted)[i] != kAnySize && (*wanted)[i] != (*given)[i]) return false;
  }
  return true;
}

Sizes widened(const Sizes& a, const Sizes& b) {
  if (!a || !b || a->size() != b->size()) return std::nullopt;
  std::vector<int64_t> sizes = *a;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != (*b)[i]) sizes[i] = kAnySize;
  }
  return sizes;
}

// Returns whether they are the same but for the shape.
bool alike(const ArgumentType& a, const ArgumentType& b) {
  ArgumentType other = b;
  other.shape = a.shape;
  return a == other;
}

bool comparable(const Signature& a, const Signature& b) {
  return a.types == b.types && a.grad_mode == b.grad_mode && a.arguments.size() == b.arguments.size();
}

}  // namespace

bool Signature::accepts(const Signature& other) const {
  if (!comparable(*this, other)) return false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!alike(arguments[i], other.arguments[i]) || !takes(arguments[i].shape, other.arguments[i].shape)) return false;
  }
  return true;
}

bool Signature::is_static() const {
  for (const ArgumentType& type : arguments) {
    if (!type.is_tensor || type.dtype == torch::ScalarType::Undefined) continue;
    if (!type.shape) return false;
    for (const int64_t size : *type.shape) {
      if (size == kAnySize) return false;
    }
  }
  return true;
}

std::optional<Signature> relaxed(const Signature& a, const Signature& b) {
  if (!comparable(a, b)) return std::nullopt;
  Signature wide = a;
  for (std::size_t i = 0; i < a.arguments.size(); ++i) {
    if (!alike(a.arguments[i], b.arguments[i])) return std::nullopt;
    if (a.arguments[i].is_tensor) wide.arguments[i].shape = widened(a.arguments[i].shape, b.arguments[i].shape);
  }
  return wide;
}

std::string to_string(const ArgumentType& type) {
  if (!type.is_tensor) return type.value;
  if (type.dtype == torch::ScalarType::Undefined) return "undefined";
  std::string text = dtype_name(type.dtype) + shape_text(type.shape) + " " + type.device.str();
  if (type.requires_grad) text += " grad";
  return text;
}

std::string to_string(const Signature& signature) {
  std::string text;
  for (const ArgumentType& type : signature.arguments) {
    // The sizes of lists, and fields of an Example that are not there, say nothing to a reader.
    if (type.is_tensor ? type.dtype == torch::ScalarType::Undefined : type.value.starts_with("[")) continue;
    text += (text.empty() ? "" : ", ") + to_string(type);
  }
  return text + (signature.grad_mode ? "" : text.empty() ? "no_grad" : ", no_grad");
}

std::string to_string(const TensorSpec& spec) {
  const std::string text = dtype_name(spec.dtype) + shape_text(spec.shape);
  return spec.name.empty() ? text : text + " (" + spec.name + ")";
}

std::string to_key(const Signature& signature) {
  std::string text = signature.types + (signature.grad_mode ? "|" : "|no_grad|");
  for (const ArgumentType& type : signature.arguments) text += to_string(type) + '|';
  return text;
}

std::string difference(const Signature& before, const Signature& now) {
  if (before.types != now.types) return "the arguments have other types";
  if (before.arguments.size() != now.arguments.size()) return "there are other numbers of tensors and values";
  for (std::size_t i = 0; i < now.arguments.size(); ++i) {
    if (now.arguments[i] == before.arguments[i]) continue;
    return c10::str(to_string(now.arguments[i]), " came, and ", to_string(before.arguments[i]), " before");
  }
  return before.grad_mode == now.grad_mode ? "nothing differs" : "gradients are kept once and once not";
}

ArgumentType type_of(const torch::Tensor& tensor) {
  ArgumentType type;
  type.is_tensor = true;
  if (!tensor.defined()) return type;
  type.dtype = tensor.scalar_type();
  type.shape = tensor.sizes().vec();
  type.device = tensor.device();
  type.requires_grad = tensor.requires_grad();
  return type;
}

ArgumentType type_of(const TensorSpec& spec, torch::Device device) {
  ArgumentType type;
  type.is_tensor = true;
  type.dtype = spec.dtype;
  type.shape = spec.shape;
  type.device = device;
  return type;
}

void check_specs(const std::vector<TensorSpec>& specs, const std::string& name) {
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (!specs[i].shape) continue;
    for (const int64_t size : *specs[i].shape) {
      if (size >= kAnySize) continue;
      fail<InvalidArgument>("[function] ", name, ": the input_signature's tensor ", i, " has the size ", size,
                            ", wanted 0 or more, or kAnySize");
    }
  }
}

void fit(Signature& signature, const std::vector<TensorSpec>& specs,
         const std::function<std::string(std::size_t)>& place, const std::string& name) {
  const Signature given = signature;
  std::size_t tensors = 0;
  for (std::size_t i = 0; i < signature.arguments.size(); ++i) {
    ArgumentType& type = signature.arguments[i];
    if (!type.is_tensor) {
      if (type.value.starts_with("[")) continue;  // the size of a list of tensors
      fail<InvalidArgument>("[function] ", name, ": ", place(i), " is the value ", type.value,
                            ", but there is an input_signature, which has tensors only; capture the value instead");
    }
    if (type.dtype == torch::ScalarType::Undefined) continue;
    if (tensors < specs.size()) {
      const TensorSpec& spec = specs[tensors];
      if (type.dtype != spec.dtype || !takes(spec.shape, type.shape)) {
        fail<InvalidArgument>("[function] ", name, ": ", place(i), " is ", to_string(type),
                              ", but the input_signature wants ", to_string(spec));
      }
      type.shape = spec.shape;
    }
    ++tensors;
  }
  if (tensors == specs.size()) return;
  std::ostringstream wanted;
  for (std::size_t i = 0; i < specs.size(); ++i) wanted << (i == 0 ? "" : ", ") << to_string(specs[i]);
  fail<InvalidArgument>("[function] ", name, ": ", tensors, " tensors came (", to_string(given),
                        "), but the input_signature wants ", specs.size(), " (", wanted.str(), ")");
}

}  // namespace cohort
