// The node whose elements stand for files, which workers divide.
#include <algorithm>

#include "data/counts.h"
#include "data/node.h"

namespace cohort {

namespace {

class FilesNode final : public UnaryNode {
 public:
  using UnaryNode::UnaryNode;
  std::unique_ptr<ElementIterator> iterate(const PassOptions& options) const override {
    auto all = input().iterate(PassOptions(IteratorOptions{.epoch = options.epoch}));
    return options.file_shards == 1 ? std::move(all) : sharded(std::move(all), options.file_shards, options.file_shard);
  }
  Extent extent(const IteratorOptions& part) const override {
    const int64_t count = input().cardinality();
    return Extent::of(count < 0 ? count : ceil_div(std::max<int64_t>(count - part.file_shard, 0), part.file_shards));
  }
  int64_t num_files() const override { return input().cardinality(); }
};

}  // namespace

NodePtr make_files(NodePtr input) {
  return std::make_shared<FilesNode>(std::move(input));
}

}  // namespace cohort
