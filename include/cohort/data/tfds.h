// A data set that TensorFlow Datasets has prepared, read from its folder (dataset_info.json, features.json, shards).
//
//   const TFDSFolder cifar("tfds/cifar10/3.0.2");
//   const Dataset train = cifar.split("train[:90%]");       // x: uint8 image, y: int64 label
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/data/decode_options.h"
#include "cohort/data/tfrecord.h"
#include "cohort/dataset.h"

namespace cohort {

struct TFDSOptions {
  DecodeOptions decode = {};           // the decoding of images
  MapOptions threads = {};             // the threads that decode
  TFRecordReaderOptions records = {};  // the reading of records
  // Labels have to be from 0 to below this (DataLoss names the file and the record); 0: any.
  int64_t num_classes = 0;
};

// A handle; constant, so thread-safe.
class TFDSFolder {
 public:
  // The folder itself, or one that has a single version below it. NotFound: there is no dataset_info.json; DataLoss: it
  // or features.json is damaged; Unimplemented: shards of another format than TFRecord.
  explicit TFDSFolder(const std::filesystem::path& folder);

  // Returns the name of the data set, such as "cifar10".
  const std::string& name() const;
  // Returns the version of the data set, such as "3.0.2".
  const std::string& version() const;
  const std::map<std::string, int64_t>& splits() const;  // examples of each
  // Returns the names of the label's classes, or nothing if the folder has none.
  const std::vector<std::string>& class_names() const;
  int64_t num_classes() const;  // 0: the label is no class

  // Returns the examples of "train", "train[:80%]", "train[100:200]+test" and so on, in their order, by the data set's
  // supervised keys. x: an image, uint8 [channels, height, width], or the value of a tensor feature; y: int64 label, or
  // a tensor. NotFound: a shard or a split is missing; InvalidArgument: no such part, or a data set without supervised
  // keys. Unimplemented: features that are not supported.
  Dataset split(std::string_view spec, const TFDSOptions& options = {}) const;

 private:
  class Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace cohort
