// A group that lies whole in one file is one whose tensors have one piece each.
#include "checkpoint/reader.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "base/fail.h"
#include "checkpoint/file_ranges.h"
#include "checkpoint/safetensors.h"
#include "device/host_memory.h"

namespace cohort {

// The files of tensors that have been opened, with their entries.
class OpenShards {
 public:
  explicit OpenShards(std::filesystem::path folder) : folder_(std::move(folder)) {}

  struct File {
    explicit File(const std::filesystem::path& file) : ranges(file) {}
    FileRanges ranges;
    uint64_t data = 0;
    std::map<std::string, SafetensorsEntry> entries;
  };

  File& open(const std::string& name) {
    std::unique_ptr<File>& file = files_[name];
    if (file) return *file;
    auto opened = std::make_unique<File>(folder_ / name);
    const std::string source = opened->ranges.file().string();
    std::vector<std::byte> length(std::min<uint64_t>(sizeof(uint64_t), opened->ranges.size()));
    opened->ranges.read(0, length);
    std::vector<std::byte> text(safetensors_header_length(length, opened->ranges.size(), source));
    opened->ranges.read(sizeof(uint64_t), text);
    SafetensorsHeader header = parse_safetensors_header(text, opened->ranges.size(), source);
    opened->data = header.data;
    for (SafetensorsEntry& entry : header.entries) opened->entries.emplace(entry.name, std::move(entry));
    file = std::move(opened);
    return *file;
  }

 private:
  std::filesystem::path folder_;
  std::map<std::string, std::unique_ptr<File>> files_;
};

namespace {

class GroupSource final : public TensorSource {
 public:
  GroupSource(std::string folder, std::shared_ptr<OpenShards> files, std::map<std::string, TensorInPieces> tensors)
      : folder_(std::move(folder)), files_(std::move(files)), tensors_(std::move(tensors)) {}

  std::vector<std::string> names() const override {
    std::vector<std::string> list;
    for (const auto& [name, tensor] : tensors_) list.push_back(name);
    return list;
  }

  const WholeTensor* find(const std::string& name) const override {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second.whole;
  }

  torch::Tensor read(const std::string& name, const Runs& runs, const std::vector<int64_t>& order) const override {
    const TensorInPieces& tensor = tensors_.at(name);
    if (order == tensor.whole.order) return collect(name, tensor, runs);
    const torch::Tensor all =
        in_shape(collect(name, tensor, {.length = elements_in(tensor.whole.shape)}), tensor.whole);
    const torch::Tensor flat = (order.empty() ? all : all.permute(order)).contiguous().view(-1);
    return flat.as_strided({runs.count, runs.length}, {runs.stride, 1}, runs.offset).reshape({runs.size()});
  }

 private:
  torch::Tensor collect(const std::string& name, const TensorInPieces& tensor, const Runs& runs) const {
    torch::Tensor all = at::empty({runs.size()}, torch::TensorOptions(tensor.whole.dtype));
    const auto bytes = host_bytes(all);
    const std::size_t width = all.element_size();
    int64_t found = 0;
    for (const PieceInFile& piece : tensor.pieces) {
      each_common(piece.runs, runs, [&](int64_t from, int64_t to, int64_t length) {
        OpenShards::File& file = files_->open(piece.file);
        const SafetensorsEntry& entry = entry_of(file, piece, tensor);
        file.ranges.read(file.data + entry.begin + static_cast<uint64_t>(from) * width,
                         bytes.subspan(static_cast<std::size_t>(to) * width, static_cast<std::size_t>(length) * width));
        found += length;
      });
    }
    if (found != runs.size()) {
      fail<DataLoss>("[checkpoint] ", folder_, ": the pieces of \"", name, "\" have ", found, " of ", runs.size(),
                     " elements: they overlap and leave others out");
    }
    return all;
  }

  static const SafetensorsEntry& entry_of(const OpenShards::File& file, const PieceInFile& piece,
                                          const TensorInPieces& tensor) {
    const auto found = file.entries.find(piece.entry);
    const auto wanted = static_cast<uint64_t>(piece.runs.size()) * c10::elementSize(tensor.whole.dtype);
    if (found != file.entries.end() && found->second.dtype == tensor.whole.dtype &&
        found->second.end - found->second.begin == wanted) {
      return found->second;
    }
    fail<DataLoss>("[checkpoint] ", file.ranges.file().string(), ": has no entry \"", piece.entry, "\" of ",
                   piece.runs.size(), " elements of ", tensor.whole.dtype, ", which the manifest has");
  }

  std::string folder_;
  std::shared_ptr<OpenShards> files_;
  std::map<std::string, TensorInPieces> tensors_;
};

std::string text_of(const std::filesystem::path& file) {
  FileRanges ranges(file);
  std::string text(ranges.size(), '\0');
  ranges.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace

CheckpointReader::CheckpointReader(std::filesystem::path folder)
    : folder_(std::move(folder)), files_(std::make_shared<OpenShards>(folder_)) {
  const std::filesystem::path file = folder_ / kManifestFile;
  manifest_ = parse_manifest(unsealed(text_of(file), file.string()), file.string());
}

void CheckpointReader::check(int share, int shares) const {
  std::vector<int64_t> sizes;
  for (const auto& [name, noted] : manifest_.files) sizes.push_back(static_cast<int64_t>(noted.size));
  const std::vector<int> checked_by = writers_of(sizes, shares);
  auto checker = checked_by.begin();
  for (const auto& [name, noted] : manifest_.files) {
    const std::filesystem::path file = folder_ / name;
    std::error_code error;
    if (!std::filesystem::exists(file, error)) {
      fail<DataLoss>("[checkpoint] ", file.string(), ": is missing, the manifest has it");
    }
    const FileRanges ranges(file);
    if (ranges.size() != noted.size) {
      fail<DataLoss>("[checkpoint] ", file.string(), ": has ", ranges.size(), " bytes, the manifest says ", noted.size);
    }
    if (*checker++ == share && ranges.checksum() != noted.crc32c) {
      fail<DataLoss>("[checkpoint] ", file.string(), ": its bytes do not have the manifest's checksum");
    }
  }
}

std::vector<std::string> CheckpointReader::groups() const {
  std::vector<std::string> names;
  for (const auto& [group, tensors] : manifest_.pieces) names.push_back(group);
  std::map<std::string, bool> of_pieces;
  for (const auto& [group, tensors] : manifest_.pieces) {
    for (const auto& [name, tensor] : tensors) {
      for (const PieceInFile& piece : tensor.pieces) of_pieces[piece.file] = true;
    }
  }
  for (const auto& [name, noted] : manifest_.files) {
    if (noted.kind == ManifestFile::Kind::kTensors && !of_pieces.contains(name)) {
      names.push_back(std::filesystem::path(name).stem());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::map<std::string, TensorInPieces> CheckpointReader::places(const std::string& group) const {
  if (const auto found = manifest_.pieces.find(group); found != manifest_.pieces.end()) return found->second;
  const std::string file = group + ".safetensors";
  if (!manifest_.files.contains(file)) {
    const std::vector<std::string> names = groups();
    fail<NotFound>("[checkpoint] ", folder_.string(), " has no tensors \"", group, "\", only ", c10::Join(", ", names));
  }
  std::map<std::string, TensorInPieces> tensors;
  for (const auto& [name, entry] : files_->open(file).entries) {
    const WholeTensor whole{.dtype = entry.dtype, .shape = entry.shape, .order = {}};
    tensors[name] = {.whole = whole,
                     .pieces = {{.file = file, .entry = name, .runs = {.length = elements_in(entry.shape)}}}};
  }
  return tensors;
}

std::unique_ptr<TensorSource> CheckpointReader::group(const std::string& name) const {
  return std::make_unique<GroupSource>(folder_.string(), files_, places(name));
}

std::vector<std::string> CheckpointReader::names_of_bytes() const {
  std::vector<std::string> names;
  for (const auto& [name, noted] : manifest_.files) {
    if (noted.kind == ManifestFile::Kind::kBytes) names.push_back(std::filesystem::path(name).stem());
  }
  return names;
}

std::string CheckpointReader::bytes(const std::string& name) const {
  const std::string file = name + ".bin";
  if (!manifest_.files.contains(file))
    fail<NotFound>("[checkpoint] ", folder_.string(), " has no bytes \"", name, "\"");
  return text_of(folder_ / file);
}

}  // namespace cohort
