// Saved positions and cached examples as bytes: magic, length of a JSON text, the JSON, the tensors' bytes, CRC-32 of
// it all.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "data/node.h"

namespace cohort {

std::string to_bytes(const IteratorState& state);

// Parses a state; `source` is the name of the bytes in errors. DataLoss: they are damaged.
IteratorState from_bytes(std::string_view bytes, const std::string& source);

// Parses `bytes` and gives the position to `restore`. InvalidArgument: the position does not fit the pipeline.
void restore_from(std::string_view bytes, const std::string& source,
                  const std::function<void(const IteratorState&)>& restore);

}  // namespace cohort
