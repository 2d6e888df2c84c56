#include "wings/xla/device/hlo.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/fail.h"
#include "xla_messages.pb.h"

namespace cohort {

namespace {

namespace messages = xla_messages;

// XLA's PrimitiveType, which has other numbers than PJRT's types.
struct PrimitiveRow {
  int number;
  const char* name;
  XlaType type = XlaType::kInvalid;
  int64_t bytes = 0;  // of types that have no row in types.cpp
};
constexpr int kTuple = 13;
constexpr std::array kPrimitives = {
    PrimitiveRow{1, "pred", XlaType::kPred},
    PrimitiveRow{2, "s8", XlaType::kS8},
    PrimitiveRow{3, "s16", XlaType::kS16},
    PrimitiveRow{4, "s32", XlaType::kS32},
    PrimitiveRow{5, "s64", XlaType::kS64},
    PrimitiveRow{6, "u8", XlaType::kU8},
    PrimitiveRow{7, "u16", XlaType::kU16},
    PrimitiveRow{8, "u32", XlaType::kU32},
    PrimitiveRow{9, "u64", XlaType::kU64},
    PrimitiveRow{10, "f16", XlaType::kF16},
    PrimitiveRow{11, "f32", XlaType::kF32},
    PrimitiveRow{12, "f64", XlaType::kF64},
    PrimitiveRow{kTuple, "tuple"},
    PrimitiveRow{14, "opaque"},
    PrimitiveRow{15, "c64", XlaType::kC64},
    PrimitiveRow{16, "bf16", XlaType::kBF16},
    PrimitiveRow{17, "token"},
    PrimitiveRow{18, "c128", XlaType::kC128},
};

const PrimitiveRow* primitive(int number) {
  const auto* const row = std::find_if(kPrimitives.begin(), kPrimitives.end(),
                                       [&](const PrimitiveRow& each) { return each.number == number; });
  return row == kPrimitives.end() ? nullptr : row;
}

messages::Module read_module(std::string_view bytes) {
  messages::ModuleWithConfig whole;
  if (!whole.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    fail<DataLoss>("[xla] ", bytes.size(), " bytes are no optimised program");
  }
  return std::move(*whole.mutable_hlo_module());
}

XlaShape array_of(const messages::Shape& shape) {
  const PrimitiveRow* const row = primitive(shape.element_type());
  return {row == nullptr ? XlaType::kInvalid : row->type, {shape.dimensions().begin(), shape.dimensions().end()}};
}

std::string text_of(const messages::Shape& shape) {
  const PrimitiveRow* const row = primitive(shape.element_type());
  std::string text;
  if (row != nullptr && row->number == kTuple) {
    for (const messages::Shape& part : shape.tuple_shapes()) text += (text.empty() ? "" : ", ") + text_of(part);
    return "(" + text + ")";
  }
  for (const int64_t size : shape.dimensions()) text.append(text.empty() ? "" : ",").append(std::to_string(size));
  return (row == nullptr ? "type" + std::to_string(shape.element_type()) : row->name) + "[" + text + "]";
}

// Returns the bytes of the arrays in the shape. Types without a size, such as tokens, have none.
int64_t bytes_of(const messages::Shape& shape) {
  int64_t bytes = 0;
  for (const messages::Shape& part : shape.tuple_shapes()) bytes += bytes_of(part);
  const XlaShape array = array_of(shape);
  return array.type == XlaType::kInvalid ? bytes : bytes + array.num_bytes();
}

template <typename Fn>
void for_each_operation(const messages::Module& module, const Fn& fn) {
  for (const messages::Computation& computation : module.computations()) {
    for (const messages::Instruction& operation : computation.instructions()) fn(operation);
  }
}

// Returns the collective that an operation is or begins, or an empty text. One that is in two parts counts where it
// begins.
std::string collective_of(const messages::Instruction& operation) {
  constexpr std::array kCollectives = {"all-reduce",         "all-gather",           "reduce-scatter",   "all-to-all",
                                       "collective-permute", "collective-broadcast", "ragged-all-to-all"};
  for (const char* const name : kCollectives) {
    if (operation.opcode() == name || operation.opcode() == std::string(name) + "-start") return name;
  }
  return "";
}

// Returns what a device gets by a collective. The form in two parts has the operand in its shape, too.
int64_t received_by(const messages::Instruction& operation) {
  const messages::Shape& shape = operation.shape();
  const bool in_parts = operation.opcode().ends_with("-start") && operation.opcode() != "all-reduce-start";
  return in_parts && shape.tuple_shapes_size() > 1 ? bytes_of(shape.tuple_shapes(1)) : bytes_of(shape);
}

}  // namespace

XlaSignature read_signature(std::string_view bytes) {
  const messages::Module module = read_module(bytes);
  XlaSignature signature;
  for (const messages::Shape& shape : module.host_program_shape().parameters()) {
    signature.parameters.push_back(array_of(shape));
  }
  const messages::Shape& result = module.host_program_shape().result();
  if (result.element_type() == kTuple) {
    for (const messages::Shape& shape : result.tuple_shapes()) signature.outputs.push_back(array_of(shape));
  } else if (result.element_type() != 0) {
    signature.outputs.push_back(array_of(result));
  }
  signature.donated.resize(signature.parameters.size());
  const auto donate = [&](int64_t parameter) {
    if (parameter < 0 || parameter >= static_cast<int64_t>(signature.donated.size())) {
      fail<DataLoss>("[xla] an optimised program of ", signature.donated.size(), " parameters donates parameter ",
                     parameter);
    }
    signature.donated[static_cast<std::size_t>(parameter)] = true;
  };
  for (const auto& entry : module.input_output_alias().entries()) donate(entry.parameter_number());
  for (const auto& entry : module.buffer_donor().entries()) donate(entry.parameter_number());
  return signature;
}

std::string print_hlo(std::string_view bytes) {
  const messages::Module module = read_module(bytes);
  std::map<int64_t, std::string> computations;
  for (const messages::Computation& computation : module.computations()) {
    computations[computation.id()] = computation.name();
  }
  std::string text = "HloModule " + module.name() + "\n";
  for (const messages::Computation& computation : module.computations()) {
    std::map<int64_t, std::string> names;
    for (const messages::Instruction& operation : computation.instructions()) names[operation.id()] = operation.name();
    text += c10::str("\n", computation.id() == module.entry_computation_id() ? "ENTRY " : "", "%", computation.name(),
                     " {\n");
    for (const messages::Instruction& operation : computation.instructions()) {
      text += c10::str("  ", operation.id() == computation.root_id() ? "ROOT " : "", "%", operation.name(), " = ",
                       text_of(operation.shape()), " ", operation.opcode(), "(");
      if (operation.opcode() == "parameter") text += std::to_string(operation.parameter_number());
      for (int i = 0; i < operation.operand_ids_size(); ++i) {
        text += (i > 0 ? ", %" : "%") + names[operation.operand_ids(i)];
      }
      text += ")";
      if (operation.opcode() == "get-tuple-element") text += c10::str(", index=", operation.tuple_index());
      if (operation.opcode() == "custom-call")
        text += ", custom_call_target=\"" + operation.custom_call_target() + "\"";
      for (const int64_t called : operation.called_computation_ids()) text += ", calls=%" + computations[called];
      if (!operation.metadata().op_name().empty()) text += ", op_name=\"" + operation.metadata().op_name() + "\"";
      text += "\n";
    }
    text += "}\n";
  }
  return text;
}

std::vector<XlaCollective> list_collectives(std::string_view bytes) {
  std::map<std::string, XlaCollective> found;
  for_each_operation(read_module(bytes), [&](const messages::Instruction& operation) {
    const std::string name = collective_of(operation);
    if (name.empty()) return;
    XlaCollective& collective = found[name];
    collective.name = name;
    ++collective.count;
    collective.bytes += received_by(operation);
  });
  std::vector<XlaCollective> list;
  for (auto& [name, collective] : found) list.push_back(std::move(collective));
  return list;
}

std::map<std::string, int64_t> count_operations(std::string_view bytes) {
  std::map<std::string, int64_t> counts;
  for_each_operation(read_module(bytes), [&](const messages::Instruction& each) { ++counts[each.opcode()]; });
  return counts;
}

}  // namespace cohort
