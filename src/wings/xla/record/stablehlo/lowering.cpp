#include "wings/xla/record/stablehlo/lowering.h"

#include <algorithm>

#include "base/fail.h"

namespace cohort::record::stablehlo {

std::string widened(const std::string& element) {
  return element == "f16" || element == "bf16" ? "f32" : element;
}

Lowering::Lowering(Text& text, const Operation& operation, std::vector<bool> used, const StableHloOptions& options,
                   Resolve resolve)
    : text_(text),
      operation_(operation),
      used_(std::move(used)),
      options_(options),
      resolve_(std::move(resolve)),
      results_(operation.outputs.size()) {}

bool Lowering::has(std::size_t i) const {
  return i < operation_.arguments.size() && !std::holds_alternative<std::monostate>(operation_.arguments[i]);
}

Operand Lowering::in(std::size_t i) const {
  if (const auto* place = std::get_if<Place>(&operation_.arguments.at(i))) return resolve_(*place);
  return number(i, compute());
}

Operand Lowering::operand(std::size_t i) const {
  return text_.expand(text_.convert(in(i), compute()), out().sizes);
}

std::vector<std::optional<Operand>> Lowering::list(std::size_t i) const {
  std::vector<std::optional<Operand>> operands;
  const auto* places = std::get_if<std::vector<std::optional<Place>>>(&operation_.arguments.at(i));
  if (places == nullptr) fail<Internal>("[record] argument ", i, " of ", operation_.op, " is no list of tensors");
  for (const std::optional<Place>& place : *places)
    operands.push_back(place ? std::optional(resolve_(*place)) : std::nullopt);
  return operands;
}

const c10::IValue& Lowering::attribute(std::size_t i) const {
  const auto* value = std::get_if<c10::IValue>(&operation_.arguments.at(i));
  if (value == nullptr) fail<Internal>("[record] argument ", i, " of ", operation_.op, " is no attribute");
  return *value;
}

Operand Lowering::number(std::size_t i, const std::string& element) const {
  if (const auto* place = std::get_if<Place>(&operation_.arguments.at(i)))
    return text_.convert(resolve_(*place), element);
  const at::Scalar value = attribute(i).toScalar();
  if (value.isComplex()) refuse("complex numbers");
  if (!is_float(element) && value.isIntegral(false)) return text_.integer(value.toLong(), {}, element);
  return text_.constant(value.toDouble(), {}, element);
}

bool Lowering::is_number(std::size_t i, double value) const {
  const auto* constant = std::get_if<c10::IValue>(&operation_.arguments.at(i));
  return constant != nullptr && constant->isScalar() && !constant->toScalar().isComplex() &&
         constant->toScalar().toDouble() == value;
}

double Lowering::real(std::size_t i) const {
  return attribute(i).toScalar().toDouble();
}
int64_t Lowering::integer(std::size_t i) const {
  return attribute(i).toInt();
}
bool Lowering::flag(std::size_t i) const {
  return has(i) && attribute(i).toBool();
}
std::string Lowering::string(std::size_t i) const {
  return attribute(i).toStringRef();
}

Dims Lowering::ints(std::size_t i) const {
  if (!has(i)) return {};
  const c10::IValue& value = attribute(i);
  return value.isInt() ? Dims{value.toInt()} : value.toIntVector();
}

int64_t Lowering::dim(std::size_t i, int64_t rank) const {
  const int64_t d = integer(i);
  return d < 0 ? d + std::max<int64_t>(rank, 1) : d;
}

Dims Lowering::dims(std::size_t i, int64_t rank) const {
  Dims list = ints(i);
  if (list.empty() || rank == 0) return all_dims(rank);
  for (int64_t& d : list) d = d < 0 ? d + rank : d;
  std::sort(list.begin(), list.end());
  return list;
}

bool Lowering::wants(std::size_t k) const {
  return k < out_count() && out(k).dtype != torch::ScalarType::Undefined && used_[k];
}

std::string Lowering::compute() const {
  const bool own = operation_.common != torch::ScalarType::Undefined;
  return widened(element_of(own ? operation_.common : out().dtype));
}

void Lowering::set(std::size_t k, const Operand& value) {
  if (value.sizes != out(k).sizes) {
    fail<Internal>("[record] the lowering of ", operation_.op, " made ", type_text(value), " of result ", k,
                   ", wanted ", to_string(out(k)));
  }
  results_[k] = text_.convert(value, element(k));
}

void Lowering::refuse(const std::string& why) const {
  refuse_operation(operation_.op, operation_.layer, "has no lowering to StableHLO for " + why,
                   "write it with operations that have one, or with tensors of the host (x.cpu())");
}

}  // namespace cohort::record::stablehlo
