// TorchScript: the archive that torch::jit::load() and torch.jit.load() read.
#include <sstream>

#include "wings/export/train/formats.h"

namespace cohort::exports {

// In memory first: LibTorch's writer ends the program where a disk is full.
std::string torchscript_bytes(const TracedModel& model) {
  std::ostringstream bytes;
  model.script.save(bytes);
  return std::move(bytes).str();
}

}  // namespace cohort::exports
