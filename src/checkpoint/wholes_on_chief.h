// WholesOnChief: the tensors of a module that its replicas share or have parts of, whole on the chief, one after the
// other. Each worker sends what it has of a tensor when its turn comes, so that nobody ever has more of what is not its
// own than one tensor, and the others have nothing of it.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/tensor_piece.h"
#include "checkpoint/manifest.h"
#include "cohort/example.h"
#include "cohort/mirrored.h"
#include "strategy/core.h"

namespace cohort {

class WholesOnChief {
 public:
  // The module stays as it is meanwhile. A collective of all workers, in cross-replica context, as all functions are.
  // Internal: the workers' parts of a tensor are not all of it.
  explicit WholesOnChief(const MirroredModule& module);

  // Returns the names, dtypes and sizes of MirroredModule::state(), without memory, by name.
  NamedTensors shapes() const;
  // Returns a whole tensor, on the CPU; undefined on workers other than the chief. All ask for the same one.
  torch::Tensor bring(const std::string& name) const;

 private:
  void send_own(const std::string& name) const;

  std::shared_ptr<const StrategyCore> core_;
  std::map<std::string, std::vector<TensorPiece>> own_;  // by the tensor's name
  std::vector<Manifest> notes_;                          // of each worker
  std::map<std::string, TensorInPieces> all_;
};

// Writes the tensors of a module that is divided (module_pieces.h) as save_weights() does, one after the other on the
// chief. Whatever fails there fails on all workers: they get Unavailable. A collective of them.
void save_divided(const MirroredModule& module, const std::filesystem::path& file,
                  const std::map<std::string, std::string>& metadata);

}  // namespace cohort
