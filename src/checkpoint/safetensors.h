// The safetensors format: 8 bytes of header length (little endian), a JSON header, the tensors' bytes.
// https://huggingface.co/docs/safetensors (format section); limits as in its reference implementation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/weights.h"

namespace cohort {

// The largest header, in bytes. Larger ones are refused before memory is allocated for them.
constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

// Returns the dtype that a header calls so; nothing if there is none.
std::optional<torch::ScalarType> dtype_named(std::string_view name);
// Returns a header's name of the dtype of a tensor. InvalidArgument: safetensors cannot hold it.
std::string_view name_of_dtype(torch::ScalarType dtype, const std::string& tensor);

// The entry of a tensor in a header.
struct SafetensorsEntry {
  std::string name;
  torch::ScalarType dtype = torch::kFloat;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes, within the data that follows the header
  uint64_t end = 0;
};
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their data, which they cover
  std::map<std::string, std::string> metadata;
  uint64_t data = 0;  // the place of the data in the file
};

// Returns the length of a header, without the 8 bytes that say it and that are given here. DataLoss: a file of `size`
// bytes cannot have such a header.
uint64_t safetensors_header_length(std::span<const std::byte> first, uint64_t size, const std::string& source);
// Parses a header, without these 8 bytes, of a file of `size` bytes. DataLoss: it is damaged.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> header, uint64_t size, const std::string& source);

// Parses the bytes of a whole file; `source` is its name in errors. The tensors own their memory. DataLoss: the bytes
// are damaged.
Weights parse_safetensors(std::span<const std::byte> bytes, const std::string& source);

// Returns the header, its length included, for tensors in the order in which their data follows.
std::string safetensors_header(const NamedTensors& ordered, const std::map<std::string, std::string>& metadata);

// Returns the tensors in the order in which their data is written: wide dtypes first, so that every tensor is aligned,
// then by name.
NamedTensors safetensors_order(NamedTensors tensors);

}  // namespace cohort
