// The types and shapes of XLA's arrays, and the values of options and attributes of plugins.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace cohort {

// The type of an array's elements, with PJRT's numbers.
enum class XlaType : int {
  kInvalid = 0,
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kBF16 = 13,
  kC64 = 14,
  kC128 = 15,
};

// Returns XLA's type for a dtype. Unimplemented: XLA has none.
XlaType xla_type(torch::ScalarType dtype);
// Returns the dtype for a type. LibTorch 1.13 has no unsigned integers of 16, 32 and 64 bits: those become the signed
// dtype of the same size, with the same bits. Unimplemented: there is none.
torch::ScalarType torch_type(XlaType type);
// Returns the number of bytes of an element. Unimplemented: the type is not of the list above.
int64_t size_of(XlaType type);
// Returns the type's name in StableHLO's text without the marks around it: "f32", "i1", "ui64".
std::string_view name_of(XlaType type);

// The type and the sizes of an array.
struct XlaShape {
  XlaType type = XlaType::kInvalid;
  std::vector<int64_t> sizes;

  int64_t num_elements() const;
  int64_t num_bytes() const { return num_elements() * size_of(type); }
  // Returns "f32[2,3]".
  std::string to_text() const;
  bool operator==(const XlaShape&) const = default;
};

// An option for a plugin, or an attribute that it tells.
using XlaValue = std::variant<std::string, int64_t, std::vector<int64_t>, float, bool>;
using XlaOptions = std::map<std::string, XlaValue>;

// Returns the value as a text: "4", "[0,1]", "true".
std::string to_text(const XlaValue& value);
// Reads "name=4,name=[2,2],name=true,name=0.5,name=text". InvalidArgument: a part has no "=", no name, or a name that
// was there.
XlaOptions parse_xla_options(std::string_view text);

}  // namespace cohort
