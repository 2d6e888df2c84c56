// The records of TFRecord files.
#include "cohort/tfrecord.h"

#include <ATen/Functions.h>

#include <cstring>

#include "base/fail.h"
#include "data/node.h"

namespace cohort {

namespace {

using Files = std::vector<std::filesystem::path>;

class TFRecordIterator final : public ElementIterator {
 public:
  TFRecordIterator(Files files, const TFRecordReaderOptions& options) : files_(std::move(files)), options_(options) {}

  bool next(Element& element) override {
    for (; at_ < files_.size(); ++at_, reader_.reset()) {
      if (!reader_) reader_.emplace(files_[at_], options_);
      const std::optional<std::string_view> record = reader_->next();
      if (!record) continue;
      const torch::Tensor bytes = at::empty({static_cast<int64_t>(record->size())}, torch::kByte);
      if (!record->empty()) std::memcpy(bytes.data_ptr(), record->data(), record->size());
      element = {.example = {.x = bytes}};
      return true;
    }
    return false;
  }

  nlohmann::json save(std::vector<torch::Tensor>& /*tensors*/) override {
    return {{"files", files_.size()}, {"file", at_}, {"offset", reader_ ? reader_->offset() : 0}};
  }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& /*tensors*/) override {
    const auto files = tree.at("files").get<std::size_t>();
    const auto at = tree.at("file").get<std::size_t>();
    if (files != files_.size() || at > files) {
      fail<InvalidArgument>("[data] iterator state: file ", at, " of ", files, ", this pipeline reads ", files_.size());
    }
    at_ = at;
    reader_.reset();
    const auto offset = tree.at("offset").get<int64_t>();
    if (at_ == files_.size() || offset == 0) return;
    reader_.emplace(files_[at_], options_);
    reader_->seek(offset);
  }

 private:
  Files files_;
  TFRecordReaderOptions options_;
  std::size_t at_ = 0;
  std::optional<TFRecordReader> reader_;
};

class TFRecordNode final : public DatasetNode {
 public:
  TFRecordNode(Files files, const TFRecordReaderOptions& options) : files_(std::move(files)), options_(options) {}

  std::unique_ptr<ElementIterator> iterate(const IteratorOptions& options) const override {
    Files own;
    for (auto i = static_cast<std::size_t>(options.file_shard); i < files_.size();
         i += static_cast<std::size_t>(options.file_shards)) {
      own.push_back(files_[i]);
    }
    return std::make_unique<TFRecordIterator>(std::move(own), options_);
  }
  int64_t cardinality() const override { return kUnknownCardinality; }
  Batching batching() const override { return {}; }
  int64_t num_files() const override { return static_cast<int64_t>(files_.size()); }

 private:
  Files files_;
  TFRecordReaderOptions options_;
};

}  // namespace

Dataset datasets::tfrecord(const std::vector<std::filesystem::path>& files, const TFRecordReaderOptions& options) {
  for (const auto& file : files) {
    if (!std::filesystem::exists(file)) fail<NotFound>("[data] ", file.string(), ": there is no such file");
  }
  return Dataset(std::make_shared<TFRecordNode>(files, options));
}

}  // namespace cohort
