// Saved positions and cached examples as bytes: magic, length of a JSON text, the JSON, the tensors' bytes, CRC-32 of
// it all.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "data/node.h"

namespace cohort {

std::string to_bytes(const IteratorState& state);

// `source` names the bytes in errors (DataLoss).
IteratorState from_bytes(std::string_view bytes, const std::string& source);

}  // namespace cohort
