#include "cohort/weights.h"

#include <ATen/Functions.h>

#include <fstream>

#include "base/atomic_file.h"
#include "base/fail.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/stream_weights.h"
#include "device/host_memory.h"

namespace cohort {

void save_weights(const std::filesystem::path& file, const NamedTensors& tensors,
                  const std::map<std::string, std::string>& metadata) {
  NamedTensors dense;
  dense.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) dense.emplace_back(name, tensor.detach().to(torch::kCPU).contiguous());
  const NamedTensors ordered = safetensors_order(std::move(dense));
  const std::string header = safetensors_header(ordered, metadata);
  AtomicFile out(file);
  out.write(header);
  for (const auto& [name, tensor] : ordered) {
    out.write(host_bytes(tensor));
  }
  out.commit();
}

void stream_weights(const std::filesystem::path& file, const TensorSource& source,
                    const std::map<std::string, std::string>& metadata) {
  NamedTensors shapes;  // without memory
  for (const std::string& name : source.names()) {
    const WholeTensor& whole = *source.find(name);
    shapes.emplace_back(name, at::empty(whole.shape, torch::TensorOptions(whole.dtype).device(torch::kMeta)));
  }
  const NamedTensors ordered = safetensors_order(std::move(shapes));
  AtomicFile out(file);
  out.write(safetensors_header(ordered, metadata));
  for (const auto& [name, shape] : ordered) {
    const torch::Tensor tensor = source.read_whole(name).contiguous();
    out.write(host_bytes(tensor));
  }
  out.commit();
}

Weights load_weights(const std::filesystem::path& file) {
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  std::ifstream in;
  if (!error) in.open(file, std::ios::binary);  // at a pipe it would wait
  if (error || !in)
    fail<NotFound>("[weights] ", file.string(), ": cannot be opened: ", error ? error.message() : "no such file");
  std::vector<std::byte> bytes(size);
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (static_cast<std::uintmax_t>(in.gcount()) != size) {
    fail<DataLoss>("[weights] ", file.string(), ": only ", in.gcount(), " of ", size, " bytes could be read");
  }
  return parse_safetensors(bytes, file.string());
}

}  // namespace cohort
