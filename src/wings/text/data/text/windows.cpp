// The text is copied by a pointer into a CPU tensor.
#include "wings/text/data/text/windows.h"

#include <ATen/Functions.h>

#include <cstring>

#include "base/fail.h"

namespace cohort::datasets {

torch::Tensor windows_of(const char* speaker, const std::string& text, int64_t seq_length) {
  if (seq_length < 1) fail<InvalidArgument>("[data] ", speaker, ": seq_length is ", seq_length, ", wanted 1 or more");
  const auto size = static_cast<int64_t>(text.size());
  if (size <= seq_length) {
    fail<InvalidArgument>("[data] ", speaker, ": the text has ", size, " bytes, wanted at least ", seq_length + 1,
                          ", one more than seq_length");
  }
  const torch::Tensor bytes = at::empty({size}, torch::kByte);
  std::memcpy(bytes.data_ptr(), text.data(), text.size());
  return bytes.unfold(0, seq_length + 1, seq_length);
}

Dataset examples_of(const torch::Tensor& windows) {
  const int64_t seq_length = windows.size(1) - 1;
  return Dataset::from_tensor_slices(windows.narrow(1, 0, seq_length), windows.narrow(1, 1, seq_length));
}

}  // namespace cohort::datasets
