// IDX files, the format of MNIST. Values are written by a pointer into a CPU tensor.
#include "data/readers/idx.h"
#include "data/readers/gzip.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/fail.h"
#include "cohort/data/datasets.h"

namespace cohort {

namespace {

std::optional<torch::ScalarType> dtype_of(unsigned code) {
  switch (code) {
    case 0x08:
      return torch::kByte;
    case 0x09:
      return torch::kChar;
    case 0x0b:
      return torch::kShort;
    case 0x0c:
      return torch::kInt;
    case 0x0d:
      return torch::kFloat;
    case 0x0e:
      return torch::kDouble;
    default:
      return std::nullopt;
  }
}

uint32_t big_endian(std::span<const std::byte> bytes, std::size_t at) {
  uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = (value << 8) | std::to_integer<uint32_t>(bytes[at + i]);
  return value;
}

void copy_values(std::span<const std::byte> from, std::byte* to, std::size_t item) {
  if (item == 1) {
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
    return;
  }
  for (std::size_t at = 0; at < from.size(); at += item) {
    for (std::size_t i = 0; i < item; ++i) to[at + i] = from[at + item - 1 - i];
  }
}

}  // namespace

torch::Tensor parse_idx(std::span<const std::byte> bytes, const std::string& source) {
  constexpr std::size_t kPrefix = 4;
  if (bytes.size() < kPrefix)
    fail<DataLoss>("[data] ", source, ": ", bytes.size(), " bytes, wanted at least the 4 of an IDX header");
  const auto zero = std::to_integer<unsigned>(bytes[0]) << 8 | std::to_integer<unsigned>(bytes[1]);
  const auto code = std::to_integer<unsigned>(bytes[2]);
  const auto dtype = dtype_of(code);
  if (zero != 0 || !dtype) {
    fail<DataLoss>("[data] ", source, ": not an IDX file: bytes 0 to 2 are ", zero >> 8, ", ", zero & 0xff, ", ", code,
                   ", wanted 0, 0 and a dtype (8, 9, 11, 12, 13, 14)");
  }
  const auto dims = std::to_integer<std::size_t>(bytes[3]);
  const std::size_t header = kPrefix + 4 * dims;
  if (bytes.size() < header) {
    fail<DataLoss>("[data] ", source, ": the header of ", dims, " dimensions ends at byte ", header, ", the file at ",
                   bytes.size());
  }
  const std::size_t item = c10::elementSize(*dtype);
  const std::size_t room = bytes.size() - header;
  std::vector<int64_t> shape;
  std::size_t wanted = item;
  auto extent = static_cast<int64_t>(item);
  bool overflow = false;
  for (std::size_t i = 0; i < dims; ++i) {
    const uint32_t size = big_endian(bytes, kPrefix + 4 * i);
    shape.push_back(size);
    // A zero among the sizes must not hide an impossible one: the strides have to fit, too.
    overflow = overflow || __builtin_mul_overflow(extent, std::max<int64_t>(size, 1), &extent);
    wanted *= size;  // below extent, unless that overflows
  }
  if (overflow || wanted != room) {
    fail<DataLoss>("[data] ", source, ": shape ", at::IntArrayRef(shape), " wants ",
                   overflow ? std::string("more bytes than there can be") : c10::str(wanted, " bytes"), " from byte ",
                   header, " on, found ", room);
  }
  torch::Tensor tensor = at::empty(shape, torch::TensorOptions(*dtype));
  copy_values(bytes.subspan(header), static_cast<std::byte*>(tensor.data_ptr()), item);
  return tensor;
}

torch::Tensor read_idx(const std::filesystem::path& file) {
  const std::string bytes = read_maybe_gzip(file);
  return parse_idx(std::as_bytes(std::span(bytes)), file.string());
}

}  // namespace cohort
