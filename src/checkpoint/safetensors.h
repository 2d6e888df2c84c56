// The safetensors format: 8 bytes of header length (little endian), a JSON header, the tensors' bytes.
// https://huggingface.co/docs/safetensors (format section); limits as in its reference implementation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "cohort/weights.h"

namespace cohort {

// The largest header, in bytes. Larger ones are refused before memory is allocated for them.
constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

// Parses the bytes of a whole file; `source` is its name in errors. The tensors own their memory. DataLoss: the bytes
// are damaged.
Weights parse_safetensors(std::span<const std::byte> bytes, const std::string& source);

// Returns the header, its length included, for tensors in the order in which their data follows.
std::string safetensors_header(const NamedTensors& ordered, const std::map<std::string, std::string>& metadata);

// Returns the tensors in the order in which their data is written: wide dtypes first, so that every tensor is aligned,
// then by name.
NamedTensors safetensors_order(NamedTensors tensors);

}  // namespace cohort
