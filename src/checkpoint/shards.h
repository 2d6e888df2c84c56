// The shards of a checkpoint that several workers write together, in one folder that all of them reach.
//
//   <draft>/model.shard-1-of-4.safetensors   what worker 1 has of the group "model"
//           shard-1-of-4.json                says that the files of worker 1 are whole, and what is in them
//
// The last thing that a worker does is to write its note. The chief waits for those of all workers, makes the manifest
// of them and renames the folder, so that no message is needed while the training goes on.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/tensor_piece.h"
#include "checkpoint/manifest.h"
#include "checkpoint/reader.h"
#include "device/leaving.h"

namespace cohort {

// What CheckpointData has of tensors in pieces: those that this worker saves, by group, or where all are read from.
struct CheckpointShards {
  std::map<std::string, std::vector<TensorPiece>> pieces;
  std::shared_ptr<const CheckpointReader> reader;
};

// A worker among those who write a checkpoint.
struct ShardWriter {
  int rank = 0;
  int workers = 1;
};

// Pieces on their way to the host, as they are when this is made.
class LeavingShards {
 public:
  explicit LeavingShards(const CheckpointShards& shards);
  // Waits for them and returns them, in memory of their own; once.
  CheckpointShards take();

 private:
  CheckpointShards shards_;
  std::unique_ptr<LeavingTensors> values_;
};

// Writes what this worker has of a checkpoint: its pieces, and bytes by name. Unavailable, NotFound: the files cannot
// be written.
void write_shard(const std::filesystem::path& draft, const ShardWriter& writer, const CheckpointShards& shards,
                 const std::map<std::string, std::string>& bytes);

// Adds the files and the pieces of a worker's note to a manifest, these in the order of their places. InvalidArgument:
// two workers have said different things of a tensor.
void add_note(const Manifest& note, Manifest& manifest);

// How long the chief waits for the shards.
struct ShardsToCome {
  int workers = 1;
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  std::function<bool()> given_up = {};  // asked meanwhile: returns whether a worker has failed
};

// Waits until all workers have written their shards, and adds the files and pieces to the manifest. DeadlineExceeded:
// some have not, which the message names. Cancelled: one has failed. InvalidArgument: the workers' parts do not fit.
void gather_shards(const std::filesystem::path& draft, const ShardsToCome& wanted, Manifest& manifest);

}  // namespace cohort
