#include "checkpoint/part_files.h"

#include <span>

#include "base/atomic_file.h"
#include "base/crc32c.h"
#include "base/fail.h"
#include "checkpoint/safetensors.h"
#include "device/host_memory.h"

namespace cohort {

namespace {

// Writes one file and notes its size and checksum.
class FileWriter {
 public:
  explicit FileWriter(const std::filesystem::path& file) : out_(file) {}

  void write(std::span<const std::byte> bytes) {
    out_.write(bytes);
    noted_.size += bytes.size();
    noted_.crc32c = crc32c(bytes, noted_.crc32c);
  }
  ManifestFile commit(ManifestFile::Kind kind) {
    out_.commit();
    noted_.kind = kind;
    return noted_;
  }

 private:
  AtomicFile out_;
  ManifestFile noted_;
};

}  // namespace

ManifestFile write_tensor_file(const std::filesystem::path& file, const NamedTensors& tensors) {
  const NamedTensors ordered = safetensors_order(tensors);
  FileWriter out(file);
  const std::string header = safetensors_header(ordered, {{"format", "pt"}});
  out.write(std::as_bytes(std::span(header)));
  for (const auto& [name, tensor] : ordered) {
    const torch::Tensor dense = tensor.detach().cpu().contiguous();
    out.write(host_bytes(dense));
  }
  return out.commit(ManifestFile::Kind::kTensors);
}

ManifestFile write_bytes_file(const std::filesystem::path& file, const std::string& bytes) {
  FileWriter out(file);
  out.write(std::as_bytes(std::span(bytes)));
  return out.commit(ManifestFile::Kind::kBytes);
}

void require_part_name(const std::string& name) {
  if (is_file_name(name)) return;
  fail<InvalidArgument>("[checkpoint] \"", name, "\" cannot name a part of a checkpoint, only letters, digits, \"_\", ",
                        "\"-\" and \".\" (not first) can");
}

}  // namespace cohort
