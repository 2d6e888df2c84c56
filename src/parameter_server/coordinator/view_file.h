// ViewFile: the last view of a run, on disk. A coordinator notes each view there before any server gets it, so that the
// one that is started next knows who has the shards, and begins a later epoch.
#pragma once

#include <filesystem>
#include <optional>

#include "messages.pb.h"

namespace cohort {

class ViewFile {
 public:
  // Uses this file. With an empty path nothing is noted, and nothing found.
  explicit ViewFile(std::filesystem::path file) : file_(std::move(file)) {}

  // Returns the noted view, or nothing if there is none yet. DataLoss: the file is damaged.
  std::optional<parameter_server::View> read() const;
  // Notes a view. It survives a power failure when the call returns.
  void write(const parameter_server::View& view) const;

 private:
  std::filesystem::path file_;
};

}  // namespace cohort
