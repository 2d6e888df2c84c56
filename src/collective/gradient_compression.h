// The table of compressions: how gradients travel, by the names that ExchangeOptions::gradient_compression takes.
#pragma once

#include <torch/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cohort {

class CommHook;
class FlatParameters;
struct ExchangeOptions;

// A compression. Those of wings are extensions.
struct GradientCompression {
  std::string_view name;
  std::string_view help = {};  // how gradients travel, for --gradient_compression
  // The half type that gradients are rounded to; nothing: they travel as they are, or a hook sums them.
  std::optional<torch::ScalarType> dtype = std::nullopt;
  // Makes what sums the gradients of a local replica in place of all-reduces (step/exchange/comm_hook.h); null: none.
  std::unique_ptr<CommHook> (*make)(const FlatParameters& flat, const ExchangeOptions& options, int local_id) = nullptr;
  std::string_view wing = {};  // the wing that has the compression, in the core's row of it
};

// Returns the rows, those of wings that this build lacks, too.
std::vector<const GradientCompression*> gradient_compressions();

// Returns the row of a name. InvalidArgument: there is no such compression. Unimplemented: this build lacks its wing.
const GradientCompression& gradient_compression(std::string_view name);

}  // namespace cohort
