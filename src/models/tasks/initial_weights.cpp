#include "models/tasks/initial_weights.h"

#include "base/access.h"
#include "base/fail.h"
#include "cohort/checkpoint.h"
#include "cohort/weights.h"
#include "strategy/core.h"

namespace cohort {

void start_from(const std::filesystem::path& place, const std::optional<std::string>& head, Model& built) {
  Access::core(built.strategy())->on_chief("the weights to start from", [&] {
    const bool folder = std::filesystem::is_directory(place);
    NamedTensors given = folder ? read_checkpoint(place).data.tensors["model"] : load_weights(place).tensors;
    if (head) std::erase_if(given, [&](const auto& item) { return item.first.starts_with(*head + "."); });
    if (given.empty()) fail<InvalidArgument>("[task] ", place.string(), " holds no weights of a backbone");
    built.set_weights(given, /*strict=*/!head);
  });
  built.module().copy_from_chief();
}

}  // namespace cohort
