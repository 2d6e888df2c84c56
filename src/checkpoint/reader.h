// CheckpointReader: reads parts of a checkpoint's tensors, whether these lie whole in a file of their group or in
// pieces in the files of several workers, and never more than what is asked for.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/tensor_piece.h"
#include "checkpoint/manifest.h"

namespace cohort {

inline constexpr const char* kManifestFile = "manifest.json";

class OpenShards;

// Used by one thread.
class CheckpointReader {
 public:
  // Reads the manifest. NotFound: there is none. DataLoss: it is damaged. Unimplemented: its format is a later one.
  explicit CheckpointReader(std::filesystem::path folder);

  const std::filesystem::path& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }

  // Checks the sizes of all files, and the checksums of one share of them, of which there may be several with about as
  // many bytes each. DataLoss: they are not the manifest's, or a file is missing.
  void check(int share = 0, int shares = 1) const;

  // Returns the names of the groups of tensors.
  std::vector<std::string> groups() const;
  // Returns whether the tensors of a group are in pieces.
  bool in_pieces(const std::string& group) const { return manifest_.pieces.contains(group); }
  // Returns the tensors of a group. NotFound: there is no such group; DataLoss: its file is damaged.
  std::unique_ptr<TensorSource> group(const std::string& name) const;
  // Returns where the tensors of a group are, by their names.
  std::map<std::string, TensorInPieces> places(const std::string& group) const;

  // Returns the names of the pieces of bytes.
  std::vector<std::string> names_of_bytes() const;
  // Returns a piece of bytes. NotFound: there is none of that name.
  std::string bytes(const std::string& name) const;

 private:
  std::filesystem::path folder_;
  Manifest manifest_;
  std::shared_ptr<OpenShards> files_;
};

}  // namespace cohort
