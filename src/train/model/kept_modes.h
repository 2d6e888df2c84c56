// KeptModes: evaluations and predictions leave the modules in the mode in which they found them.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <utility>
#include <vector>

#include "cohort/mirrored.h"

namespace cohort {

// Keeps the mode, training or evaluation, of every module in the copies, and sets it again when it is destroyed.
class [[nodiscard]] KeptModes {
 public:
  explicit KeptModes(const MirroredModule& module) {
    for (const auto& copy : module.copies()) keep(*copy);
  }
  // Keeps that of one copy.
  explicit KeptModes(const torch::nn::Module& copy) { keep(copy); }
  KeptModes(const KeptModes&) = delete;
  KeptModes& operator=(const KeptModes&) = delete;
  // train() sets the children's mode, too, and they come later in the list.
  ~KeptModes() {
    for (const auto& [module, training] : modes_) module->train(training);
  }

 private:
  void keep(const torch::nn::Module& copy) {
    for (auto& each : copy.modules()) {
      const bool training = each->is_training();
      modes_.emplace_back(std::move(each), training);
    }
  }

  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes_;
};

}  // namespace cohort
