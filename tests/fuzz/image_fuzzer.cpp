// Any bytes either are an image of the size that their header says, or are refused with an error of ours.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "cohort/data/image.h"
#include "cohort/error.h"
#include "wings/vision/data/images/decode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const cohort::DecodeOptions options{.channels = data[0] % 2 == 0       ? 3
                                                  : data[0] % 4 - 1 == 0 ? 0
                                                                         : 1,
                                      .at_least = data[0] % 16,
                                      .most_pixels = 1 << 16};
  bytes.remove_prefix(1);
  (void)cohort::images::orientation_in(bytes);
  try {
    const torch::Tensor image = cohort::decode_image(bytes, options, "fuzz");
    const int64_t channels = image.size(0);
    if (channels != 1 && channels != 3) std::abort();
    if (options.channels != 0 && channels != options.channels) std::abort();
    if (image.size(1) * image.size(2) > options.most_pixels) std::abort();
    (void)image.sum();
  } catch (const cohort::Error&) {
  }
  return 0;
}
