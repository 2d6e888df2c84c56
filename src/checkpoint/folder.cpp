#include "checkpoint/folder.h"

#include <fcntl.h>

#include <chrono>
#include <fstream>
#include <span>

#include "base/atomic_file.h"
#include "base/crc32c.h"
#include "base/fail.h"
#include "checkpoint/environment.h"
#include "checkpoint/manifest.h"
#include "checkpoint/part_files.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/writer_folder.h"

namespace cohort {

namespace {

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

std::string read_file(const std::filesystem::path& file) {
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  std::ifstream in;
  if (!error) in.open(file, std::ios::binary);  // at a pipe it would wait
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

// Writes what is whole, and returns the manifest of it.
Manifest write_parts(const std::filesystem::path& temporary, int64_t step, const CheckpointData& data) {
  for (const auto& [name, tensors] : data.tensors) require_part_name(name);
  for (const auto& [name, bytes] : data.bytes) require_part_name(name);
  const int64_t time = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  Manifest manifest{
      .step = step, .time = time, .environment = this_environment(), .values = data.values, .files = {}, .pieces = {}};
  for (const auto& [name, tensors] : data.tensors) {
    const std::string file = name + ".safetensors";
    manifest.files[file] = write_tensor_file(temporary / file, tensors);
  }
  for (const auto& [name, bytes] : data.bytes) {
    const std::string file = name + ".bin";
    manifest.files[file] = write_bytes_file(temporary / file, bytes);
  }
  return manifest;
}

void publish(const std::filesystem::path& folder, const std::filesystem::path& temporary, const Manifest& manifest) {
  AtomicFile out(temporary / kManifestFile);
  out.write(sealed(to_json(manifest)));
  out.commit();
  put_in_place(temporary, folder);
  flush_folder(folder.parent_path());
}

}  // namespace

void make_draft(const std::filesystem::path& temporary) {
  std::error_code error;
  std::filesystem::remove_all(temporary, error);  // left by a process that was killed
  if (std::filesystem::create_directory(temporary, error)) return;
  fail<Unavailable>("[checkpoint] ", temporary.string(), ": cannot be made: ", error.message());
}

void write_checkpoint(const std::filesystem::path& folder, const std::filesystem::path& temporary, int64_t step,
                      const CheckpointData& data) {
  const RemovedUnlessRenamed guard(temporary);
  make_draft(temporary);
  publish(folder, temporary, write_parts(temporary, step, data));
}

void publish_shards(const std::filesystem::path& folder, const std::filesystem::path& temporary, int64_t step,
                    const CheckpointData& data, const ShardsToCome& shards) {
  const RemovedUnlessRenamed guard(temporary);
  Manifest manifest = write_parts(temporary, step, data);
  gather_shards(temporary, shards, manifest);
  // What cannot be read again is not published: a tensor of which no worker has a part.
  static_cast<void>(parse_manifest(to_json(manifest), temporary.string()));
  publish(folder, temporary, manifest);
}

SavedCheckpoint read_checkpoint(const std::filesystem::path& folder) {
  const CheckpointReader reader(folder);
  const Manifest& manifest = reader.manifest();
  SavedCheckpoint checkpoint{.step = manifest.step,
                             .folder = folder,
                             .data = {.values = manifest.values},
                             .environment = manifest.environment};
  if (!manifest.pieces.empty()) {
    reader.check();
    read_groups(
        reader, [](const std::string& /*group*/) { return true; }, checkpoint.data);
    for (const std::string& name : reader.names_of_bytes()) checkpoint.data.bytes[name] = reader.bytes(name);
    return checkpoint;
  }
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

void read_groups(const CheckpointReader& reader, const std::function<bool(const std::string& group)>& wanted,
                 CheckpointData& data) {
  for (const std::string& group : reader.groups()) {
    if (!wanted(group)) continue;
    const auto source = reader.group(group);
    for (const std::string& name : source->names()) data.tensors[group].emplace_back(name, source->read_whole(name));
  }
}

}  // namespace cohort
