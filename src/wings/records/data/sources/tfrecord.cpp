#include "cohort/data/tfrecord.h"

#include <ATen/Functions.h>

#include "base/fail.h"
#include "data/activity.h"
#include "data/counts.h"
#include "device/host_memory.h"
#include "wings/records/data/sources/records.h"

namespace cohort {

namespace {

struct NumberedRange : RecordRange {
  int64_t number = 0;
};
using Ranges = std::vector<NumberedRange>;

class RecordIterator final : public ElementIterator {
 public:
  RecordIterator(Ranges ranges, const TFRecordReaderOptions& options, bool places)
      : ranges_(std::move(ranges)), options_(options), places_(places) {}

  bool next(Element& element) override {
    throw_if_stopped();
    for (; at_ < ranges_.size(); pass_on()) {
      const NumberedRange& range = ranges_[at_];
      if (!reader_) open();
      if (taken_ == range.count) continue;
      const int64_t offset = reader_->offset();
      const std::optional<std::string_view> record = reader_->next();
      if (!record) {
        require_enough();
        continue;
      }
      ++taken_;
      element = Example{.x = tensor_of_text(*record)};
      if (places_) element.example->more = {at::tensor({range.number, offset}, torch::kLong)};
      return true;
    }
    return false;
  }

  nlohmann::json save(std::vector<torch::Tensor>& /*tensors*/) override {
    return {{"files", ranges_.size()}, {"file", at_}, {"taken", taken_}, {"offset", reader_ ? reader_->offset() : -1}};
  }
  void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& /*tensors*/) override {
    const auto files = tree.at("files").get<std::size_t>();
    const auto at = tree.at("file").get<std::size_t>();
    if (files != ranges_.size() || at > files) {
      fail<InvalidArgument>("[data] iterator state: file ", at, " of ", files, ", this pipeline reads ",
                            ranges_.size());
    }
    const auto offset = tree.at("offset").get<int64_t>();
    at_ = at;
    taken_ = tree.at("taken").get<int64_t>();
    reader_.reset();
    if (at_ == ranges_.size() || offset < 0) return;
    reader_.emplace(ranges_[at_].file, options_);
    reader_->seek(offset);
  }

 private:
  void open() {
    reader_.emplace(ranges_[at_].file, options_);
    for (int64_t i = 0; i < ranges_[at_].first; ++i) {
      if (!reader_->next()) require_enough();
    }
  }

  void pass_on() {
    ++at_;
    taken_ = 0;
    reader_.reset();
  }

  void require_enough() const {
    const RecordRange& range = ranges_[at_];
    const bool any_number = range.count < 0 && range.first == 0;
    if (any_number || options_.skip_damaged) return;
    fail<DataLoss>("[data] ", range.file.string(), ": there are fewer records than the ", range.first + range.count,
                   " that were announced");
  }

  Ranges ranges_;
  TFRecordReaderOptions options_;
  bool places_;
  std::size_t at_ = 0;
  int64_t taken_ = 0;  // records of the range that were taken
  std::optional<TFRecordReader> reader_;
};

class RecordNode final : public DatasetNode {
 public:
  RecordNode(Ranges ranges, const TFRecordReaderOptions& options, bool places)
      : ranges_(std::move(ranges)), options_(options), places_(places) {}

  std::unique_ptr<ElementIterator> iterate(const PassOptions& options) const override {
    return std::make_unique<RecordIterator>(ranges_of(options), options_, places_);
  }
  Extent extent(const IteratorOptions& part) const override {
    int64_t sum = 0;
    for (const RecordRange& range : ranges_of(part)) {
      if (range.count < 0) return {};
      sum = bounded_sum(sum, range.count);
    }
    return options_.skip_damaged ? Extent{} : Extent::of(sum);
  }
  Batching batching() const override { return {}; }
  int64_t num_files() const override { return static_cast<int64_t>(ranges_.size()); }

 private:
  Ranges ranges_of(const IteratorOptions& part) const {
    Ranges own;
    for (auto i = static_cast<std::size_t>(part.file_shard); i < ranges_.size();
         i += static_cast<std::size_t>(part.file_shards)) {
      own.push_back(ranges_[i]);
    }
    return own;
  }

  Ranges ranges_;
  TFRecordReaderOptions options_;
  bool places_;
};

}  // namespace

NodePtr make_records(std::vector<RecordRange> ranges, const TFRecordReaderOptions& options, bool places) {
  Ranges numbered;
  for (RecordRange& range : ranges) {
    if (!std::filesystem::exists(range.file)) fail<NotFound>("[data] ", range.file.string(), ": there is no such file");
    numbered.push_back({std::move(range), static_cast<int64_t>(numbered.size())});
  }
  return std::make_shared<RecordNode>(std::move(numbered), options, places);
}

Dataset datasets::tfrecord(const std::vector<std::filesystem::path>& files, const TFRecordReaderOptions& options) {
  std::vector<RecordRange> ranges;
  for (const auto& file : files) ranges.push_back({.file = file});
  return Dataset(make_records(std::move(ranges), options));
}

}  // namespace cohort
