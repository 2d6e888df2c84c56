#include "device/layout.h"

namespace cohort {

void lay_out_channels_last(torch::nn::Module& module) {
  constexpr int64_t kKernel = 4;  // outputs, inputs, height, width
  const torch::NoGradGuard no_grad;
  module.apply([&](torch::nn::Module& each) {
    const auto* chooses = dynamic_cast<const ChannelsLast*>(&each);
    if (chooses == nullptr || !chooses->channels_last()) return;
    for (torch::Tensor& parameter : each.parameters()) {
      if (parameter.dim() != kKernel || !parameter.is_floating_point()) continue;
      parameter.set_data(parameter.detach().contiguous(torch::MemoryFormat::ChannelsLast));
    }
  });
}

}  // namespace cohort
