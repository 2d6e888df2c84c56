#include "checkpoint/folder.h"

#include <fcntl.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>

#include "base/atomic_file.h"
#include "base/crc32c.h"
#include "base/fail.h"
#include "checkpoint/environment.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/writer_folder.h"
#include "device/host_memory.h"

namespace cohort {

namespace {

constexpr const char* kManifest = "manifest.json";

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

// Removes the files of a write that failed, which would fill the disk further.
class RemovedUnlessRenamed {
 public:
  explicit RemovedUnlessRenamed(std::filesystem::path folder) : folder_(std::move(folder)) {}
  RemovedUnlessRenamed(const RemovedUnlessRenamed&) = delete;
  RemovedUnlessRenamed& operator=(const RemovedUnlessRenamed&) = delete;
  ~RemovedUnlessRenamed() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

 private:
  std::filesystem::path folder_;
};

// Puts a folder in the place of another one. A folder cannot be renamed over one that has files, so the two change
// places, atomically where the file system can.
void put_in_place(const std::filesystem::path& temporary, const std::filesystem::path& folder) {
  std::error_code error;
  if (!std::filesystem::exists(folder, error)) {
    std::filesystem::rename(temporary, folder, error);
  } else if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) != 0) {
    const std::filesystem::path before = temporary.string() + WriterFolder::kBefore;
    std::filesystem::rename(folder, before, error);
    if (!error) std::filesystem::rename(temporary, folder, error);
    std::error_code ignored;
    if (error) {
      std::filesystem::rename(before, folder, ignored);
    } else {
      std::filesystem::remove_all(before, ignored);
    }
  }
  if (error) fail<Unavailable>("[checkpoint] ", folder.string(), ": cannot be renamed: ", error.message());
}

void require_file_name(const std::string& name) {
  if (is_file_name(name)) return;
  fail<InvalidArgument>("[checkpoint] \"", name, "\" cannot name a part of a checkpoint, only letters, digits, \"_\", ",
                        "\"-\" and \".\" (not first) can");
}

ManifestFile write_tensors(const std::filesystem::path& file, const NamedTensors& tensors) {
  const NamedTensors ordered = safetensors_order(tensors);
  FileWriter out(file);
  const std::string header = safetensors_header(ordered, {{"format", "pt"}});
  out.write(std::as_bytes(std::span(header)));
  for (const auto& [name, tensor] : ordered) {
    out.write(host_bytes(tensor));
  }
  return out.commit(ManifestFile::Kind::kTensors);
}

ManifestFile write_bytes(const std::filesystem::path& file, const std::string& bytes) {
  FileWriter out(file);
  out.write(std::as_bytes(std::span(bytes)));
  return out.commit(ManifestFile::Kind::kBytes);
}

std::string read_file(const std::filesystem::path& file) {
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  std::ifstream in(file, std::ios::binary);
  if (error || !in) {
    fail<NotFound>("[checkpoint] ", file.string(), ": cannot be opened: ", error ? error.message() : "no such file");
  }
  std::string bytes(size, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(size));
  if (static_cast<std::uintmax_t>(in.gcount()) != size) {
    fail<DataLoss>("[checkpoint] ", file.string(), ": only ", in.gcount(), " of ", size, " bytes could be read");
  }
  return bytes;
}

// The first line of a manifest, which has its own checksum; the checksums of the other files follow.
constexpr std::string_view kSealBegin = "{\n  \"crc32c\": \"";
constexpr std::string_view kSealEnd = "\",";

std::string seal_of(std::string_view json) {
  std::array<char, 9> text{};
  std::snprintf(text.data(), text.size(), "%08x", crc32c(std::as_bytes(std::span(json))));
  return c10::str(kSealBegin, text.data(), kSealEnd);
}

std::string sealed(const std::string& json) {
  return seal_of(json) + json.substr(1);
}

std::string unsealed(const std::string& text, const std::string& source) {
  const std::size_t length = kSealBegin.size() + 8 + kSealEnd.size();
  std::string json = "{" + (text.size() > length ? text.substr(length) : "");
  if (text.substr(0, length) == seal_of(json)) return json;
  fail<DataLoss>("[checkpoint] ", source, ": its bytes do not have the checksum in its first line");
}

std::string read_checked(const std::filesystem::path& file, const ManifestFile& noted) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) {
    fail<DataLoss>("[checkpoint] ", file.string(), ": is missing, the manifest has it");
  }
  std::string bytes = read_file(file);
  if (bytes.size() != noted.size) {
    fail<DataLoss>("[checkpoint] ", file.string(), ": has ", bytes.size(), " bytes, the manifest says ", noted.size);
  }
  if (crc32c(std::as_bytes(std::span(bytes))) != noted.crc32c) {
    fail<DataLoss>("[checkpoint] ", file.string(), ": its bytes do not have the manifest's checksum");
  }
  return bytes;
}

}  // namespace

void write_checkpoint(const std::filesystem::path& folder, const std::filesystem::path& temporary, int64_t step,
                      const CheckpointData& data) {
  for (const auto& [name, tensors] : data.tensors) require_file_name(name);
  for (const auto& [name, bytes] : data.bytes) require_file_name(name);
  std::error_code error;
  const RemovedUnlessRenamed guard(temporary);
  std::filesystem::remove_all(temporary, error);  // left by a process that was killed
  if (!std::filesystem::create_directory(temporary, error)) {
    fail<Unavailable>("[checkpoint] ", temporary.string(), ": cannot be made: ", error.message());
  }
  const int64_t time = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  Manifest manifest{.step = step, .time = time, .environment = this_environment(), .values = data.values, .files = {}};
  for (const auto& [name, tensors] : data.tensors) {
    const std::string file = name + ".safetensors";
    manifest.files[file] = write_tensors(temporary / file, tensors);
  }
  for (const auto& [name, bytes] : data.bytes) {
    const std::string file = name + ".bin";
    manifest.files[file] = write_bytes(temporary / file, bytes);
  }
  AtomicFile out(temporary / kManifest);
  out.write(sealed(to_json(manifest)));
  out.commit();
  put_in_place(temporary, folder);
  flush_folder(folder.parent_path());
}

SavedCheckpoint read_checkpoint(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kManifest;
  const Manifest manifest = parse_manifest(unsealed(read_file(file), file.string()), file.string());
  SavedCheckpoint checkpoint{.step = manifest.step,
                             .folder = folder,
                             .data = {.values = manifest.values},
                             .environment = manifest.environment};
  for (const auto& [name, noted] : manifest.files) {
    const std::filesystem::path part(name);
    const std::string bytes = read_checked(folder / part, noted);
    if (noted.kind == ManifestFile::Kind::kBytes) {
      checkpoint.data.bytes[part.stem()] = bytes;
    } else {
      checkpoint.data.tensors[part.stem()] =
          parse_safetensors(std::as_bytes(std::span(bytes)), (folder / part).string()).tensors;
    }
  }
  return checkpoint;
}

}  // namespace cohort
