#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/fail.h"
#include "base/log.h"
#include "cohort/data/tfrecord.h"
#include "data/readers/tfrecord.h"
#include "wings/records/data/readers/byte_source.h"

namespace cohort {

namespace {

// The bytes that are read at once. Small records lie in the buffer one after the other.
constexpr std::size_t kBuffer = std::size_t{1} << 20;
// The bytes of a long record that are read at a time, because not all of them may be there.
constexpr std::size_t kPiece = std::size_t{16} << 20;

template <typename Number>
Number number_at(const char* from) {
  Number number = 0;
  std::memcpy(&number, from, sizeof number);  // little endian, as all machines are that LibTorch runs on
  return number;
}

bool is_head(const char* head) {
  return tfrecord::masked_crc({head, 8}) == number_at<uint32_t>(head + 8);
}

// Returns the compression by the first bytes: the head of a record, gzip's magic or zlib's header. Other files are
// taken for plain ones, and are found to be damaged.
Compression compression_of(const std::filesystem::path& file) {
  std::array<char, tfrecord::kHead> head{};
  const std::size_t size = open_bytes(file, Compression::kNone)->read(head.data(), head.size());
  if (size == head.size() && is_head(head.data())) return Compression::kNone;
  if (size >= 2 && head[0] == '\x1f' && head[1] == '\x8b') return Compression::kGzip;
  const int first = static_cast<unsigned char>(head[0]);
  const int second = static_cast<unsigned char>(head[1]);
  const bool zlib = size >= 2 && (first & 0x0f) == 8 && (first * 256 + second) % 31 == 0;
  return zlib ? Compression::kZlib : Compression::kNone;
}

}  // namespace

class TFRecordReader::Impl {
 public:
  Impl(const std::filesystem::path& file, const TFRecordReaderOptions& options)
      : name_(file.string()),
        options_(options),
        source_(open_bytes(file, options.compression ? *options.compression : compression_of(file))),
        buffer_(kBuffer) {}

  std::optional<std::string_view> next() {
    while (!ended_) {
      const char* const head = take(tfrecord::kHead);
      if (head == nullptr) return std::nullopt;
      if (!is_head(head)) {
        damaged("the length of the record is damaged (its checksum is wrong)", /*to_the_end=*/true);
        continue;
      }
      const auto length = number_at<uint64_t>(head);
      const int64_t begin = offset_;
      const char* const bytes = take_long(length);
      if (bytes == nullptr) continue;
      const std::string_view record(bytes, length);
      offset_ += static_cast<int64_t>(tfrecord::kHead + length + tfrecord::kTail);
      if (tfrecord::masked_crc(record) == number_at<uint32_t>(bytes + length)) return record;
      damaged(c10::str("the ", length, " bytes of the record are damaged (their checksum is wrong)"), false, begin);
    }
    return std::nullopt;
  }

  int64_t offset() const { return offset_; }
  int64_t skipped() const { return skipped_; }

  void seek(int64_t offset) {
    if (offset < 0) fail<InvalidArgument>("[data] ", name_, ": there is no going to byte ", offset);
    source_->seek(offset);
    offset_ = offset;
    begin_ = end_ = 0;
    ended_ = false;
  }

 private:
  // Returns the next bytes, which stay contiguous until the next call. Returns null at the end of the file, and if
  // there are fewer bytes, which is damage.
  const char* take(std::size_t size) {
    if (end_ - begin_ < size) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
      end_ += source_->read(buffer_.data() + end_, buffer_.size() - end_);
    }
    if (end_ - begin_ < size) {
      if (end_ == begin_ && size == tfrecord::kHead) {
        ended_ = true;
      } else {
        damaged(c10::str("the file ends within a record: ", end_ - begin_, " of ", size, " bytes are there"), true);
      }
      return nullptr;
    }
    begin_ += size;
    return buffer_.data() + begin_ - size;
  }

  // Returns a long record and its checksum, or null if they are not all there.
  const char* take_long(uint64_t length) {
    const std::optional<int64_t> left = source_->left();
    const auto here = static_cast<uint64_t>(end_ - begin_);
    const bool too_long =
        length > uint64_t{1} << 62 || (left && length + tfrecord::kTail > here + static_cast<uint64_t>(*left));
    if (too_long) {
      damaged(c10::str("a record of ", length, " bytes begins, but the file has ",
                       left ? here + static_cast<uint64_t>(*left) : here, " more"),
              true);
      return nullptr;
    }
    const auto size = static_cast<std::size_t>(length + tfrecord::kTail);
    if (size <= buffer_.size()) return take(size);
    const std::size_t there = end_ - begin_;
    long_.assign(buffer_.data() + begin_, there);
    begin_ = end_ = 0;
    while (long_.size() < size) {
      // Memory grows with the bytes that are really there.
      const std::size_t before = long_.size();
      const std::size_t wanted = std::min(size - before, left ? size : kPiece);
      long_.resize(before + wanted);
      const std::size_t got = source_->read(long_.data() + before, wanted);
      if (got == wanted) continue;
      damaged(c10::str("the file ends within a record: ", before + got, " of ", size, " bytes are there"), true);
      return nullptr;
    }
    return long_.data();
  }

  void damaged(const std::string& what, bool to_the_end, std::optional<int64_t> at = std::nullopt) {
    const int64_t where = at.value_or(offset_);
    if (!options_.skip_damaged) fail<DataLoss>("[data] ", name_, ": at byte ", where, ": ", what);
    ++skipped_;
    ended_ = ended_ || to_the_end;
    log().warn("[data] {}: at byte {}: {}; {} ({} left out so far)", name_, where, what,
               to_the_end ? "the rest of the file is left out" : "it is left out", skipped_);
  }

  std::string name_;
  TFRecordReaderOptions options_;
  std::unique_ptr<ByteSource> source_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;  // the first byte that has not been taken
  std::size_t end_ = 0;
  std::string long_;  // a record that does not fit the buffer
  int64_t offset_ = 0;
  int64_t skipped_ = 0;
  bool ended_ = false;
};

TFRecordReader::TFRecordReader(const std::filesystem::path& file, const TFRecordReaderOptions& options)
    : impl_(std::make_unique<Impl>(file, options)) {}
TFRecordReader::TFRecordReader(TFRecordReader&&) noexcept = default;
TFRecordReader& TFRecordReader::operator=(TFRecordReader&&) noexcept = default;
TFRecordReader::~TFRecordReader() = default;

std::optional<std::string_view> TFRecordReader::next() {
  return impl_->next();
}
int64_t TFRecordReader::offset() const {
  return impl_->offset();
}
void TFRecordReader::seek(int64_t offset) {
  impl_->seek(offset);
}
int64_t TFRecordReader::skipped() const {
  return impl_->skipped();
}

}  // namespace cohort
