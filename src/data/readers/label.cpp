#include "data/readers/label.h"

#include <ATen/Functions.h>

#include "base/fail.h"

namespace cohort {

void require_label(const torch::Tensor& label, int64_t classes, const std::string& source) {
  if (classes == 0 || label.is_floating_point() || label.numel() == 0) return;
  const auto least = label.min().item<int64_t>();
  const auto most = label.max().item<int64_t>();
  if (least >= 0 && most < classes) return;
  fail<DataLoss>("[data] ", source, ": the label is ", least < 0 ? least : most, ", wanted 0 to ", classes - 1, " (",
                 classes, " classes)");
}

}  // namespace cohort
