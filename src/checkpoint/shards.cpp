#include "checkpoint/shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <thread>
#include <tuple>

#include "base/atomic_file.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "base/regular_file.h"
#include "checkpoint/part_files.h"
#include "cohort/trace.h"

namespace cohort {

namespace {

// The time between two looks at the folder.
constexpr std::chrono::milliseconds kLookForShards = std::chrono::milliseconds(5);

std::string shard_name(const ShardWriter& writer) {
  return fmt::format("shard-{}-of-{}", writer.rank, writer.workers);
}

}  // namespace

// The notes come in the order in which the workers have written; a manifest has the pieces by their places.
void add_note(const Manifest& note, Manifest& manifest) {
  manifest.files.insert(note.files.begin(), note.files.end());
  for (const auto& [group, tensors] : note.pieces) {
    for (const auto& [name, tensor] : tensors) {
      const auto [at, is_new] = manifest.pieces[group].emplace(name, tensor);
      if (is_new) continue;
      const WholeTensor& other = at->second.whole;
      if (other.shape != tensor.whole.shape || other.dtype != tensor.whole.dtype || other.order != tensor.whole.order) {
        fail<InvalidArgument>("[checkpoint] ", group, "/", name, " is ", other.dtype, c10::IntArrayRef(other.shape),
                              " on one worker and ", tensor.whole.dtype, c10::IntArrayRef(tensor.whole.shape),
                              " on another one");
      }
      std::vector<PieceInFile>& pieces = at->second.pieces;
      pieces.insert(pieces.end(), tensor.pieces.begin(), tensor.pieces.end());
      std::sort(pieces.begin(), pieces.end(), [](const PieceInFile& a, const PieceInFile& b) {
        return std::tie(a.runs.offset, a.file) < std::tie(b.runs.offset, b.file);
      });
    }
  }
}

LeavingShards::LeavingShards(const CheckpointShards& shards) : shards_(shards) {
  std::vector<torch::Tensor> values;
  for (auto& [group, pieces] : shards_.pieces) {
    for (TensorPiece& piece : pieces) values.push_back(std::move(piece.values));
  }
  values_ = leave(values);
}

CheckpointShards LeavingShards::take() {
  std::vector<torch::Tensor> values = values_->take();
  auto next = values.begin();
  for (auto& [group, pieces] : shards_.pieces) {
    for (TensorPiece& piece : pieces) piece.values = std::move(*next++);
  }
  return std::move(shards_);
}

void write_shard(const std::filesystem::path& draft, const ShardWriter& writer, const CheckpointShards& shards,
                 const std::map<std::string, std::string>& bytes) {
  const TraceSpan span("checkpoint", "write a shard");
  Manifest note;
  for (const auto& [group, pieces] : shards.pieces) {
    require_part_name(group);
    if (pieces.empty()) continue;
    const std::string file = fmt::format("{}.{}.safetensors", group, shard_name(writer));
    NamedTensors entries;
    for (const TensorPiece& piece : pieces) {
      const bool all = piece.runs == Runs{.length = elements_in(piece.whole.shape)};
      const std::string entry = all ? piece.name : fmt::format("{}@{}", piece.name, piece.runs.offset);
      entries.emplace_back(entry, piece.values);
      TensorInPieces& noted = note.pieces[group][piece.name];
      noted.whole = piece.whole;
      noted.pieces.push_back({.file = file, .entry = entry, .runs = piece.runs});
    }
    note.files[file] = write_tensor_file(draft / file, entries);
  }
  for (const auto& [name, piece] : bytes) {
    require_part_name(name);
    note.files[name + ".bin"] = write_bytes_file(draft / (name + ".bin"), piece);
  }
  AtomicFile out(draft / (shard_name(writer) + ".json"));
  out.write(sealed(to_json(note)));
  out.commit();
}

void gather_shards(const std::filesystem::path& draft, const ShardsToCome& wanted, Manifest& manifest) {
  std::set<int> missing;
  for (int rank = 0; rank < wanted.workers; ++rank) missing.insert(rank);
  const Deadline deadline(wanted.timeout);
  for (;;) {
    const bool last = deadline.passed();
    for (auto rank = missing.begin(); rank != missing.end();) {
      const auto file = draft / (shard_name({.rank = *rank, .workers = wanted.workers}) + ".json");
      const auto text = read_regular_file(file, "checkpoint");
      if (!text) {
        ++rank;
        continue;
      }
      add_note(parse_manifest(unsealed(*text, file.string()), file.string(), Coverage::kSome), manifest);
      std::error_code ignored;
      std::filesystem::remove(file, ignored);
      rank = missing.erase(rank);
    }
    if (missing.empty()) return;
    if (wanted.given_up && wanted.given_up()) {
      fail<Cancelled>("[checkpoint] ", draft.string(), ": given up, because a worker has failed");
    }
    if (last) {
      fail<DeadlineExceeded>("[checkpoint] waited ", to_text(wanted.timeout), " for the shards of worker ",
                             fmt::format("{}", fmt::join(missing, ", ")), " in ", draft.string());
    }
    std::this_thread::sleep_for(kLookForShards);
  }
}

}  // namespace cohort
