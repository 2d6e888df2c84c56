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

// Headers above this are refused before anything is allocated for them.
constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

// Parses a whole file's bytes; `source` names it in errors (DataLoss). The tensors own their memory.
Weights parse_safetensors(std::span<const std::byte> bytes, const std::string& source);

// The header, length included, for tensors in the order in which their data follows.
std::string safetensors_header(const NamedTensors& ordered, const std::map<std::string, std::string>& metadata);

// The order in which the data is written: wide dtypes first, so that every tensor is aligned; then by name.
NamedTensors safetensors_order(NamedTensors tensors);

}  // namespace cohort
