// A frame is a message and tensors. The tensors travel as the bytes that they are on the CPU: gRPC gets pointers to
// them, and keeps the tensors until they are sent.
#include "rpc/frame.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/crc32c.h"
#include "base/fail.h"

namespace cohort {

namespace {

namespace proto = rpc;

static_assert(std::endian::native == std::endian::little, "frames hold elements as they lie in memory");

constexpr std::array<char, 4> kMagic = {'C', 'P', 'S', '2'};
// The largest head, in bytes: a message and the shapes of its tensors, whose values stand behind it.
constexpr uint32_t kLongestHead = uint32_t{4} << 20;
constexpr std::size_t kMostDimensions = 64;

constexpr std::array<std::pair<proto::ElementType, torch::ScalarType>, 8> kTypes = {{
    {proto::FLOAT32, torch::kFloat},
    {proto::FLOAT64, torch::kDouble},
    {proto::FLOAT16, torch::kHalf},
    {proto::BFLOAT16, torch::kBFloat16},
    {proto::INT64, torch::kLong},
    {proto::INT32, torch::kInt},
    {proto::UINT8, torch::kByte},
    {proto::BOOL, torch::kBool},
}};

proto::ElementType type_of(torch::ScalarType dtype) {
  for (const auto& [type, own] : kTypes) {
    if (own == dtype) return type;
  }
  fail<InvalidArgument>("[rpc] values of ", dtype, " cannot be sent");
}

template <typename... Parts>
[[noreturn]] void damaged(const Parts&... parts) {
  fail<DataLoss>("[rpc] a message that came is damaged: ", parts...);
}

// Returns the bytes of a tensor of these sizes, or nothing if they are not valid sizes. The strides of an empty tensor
// have to fit as well.
std::optional<uint64_t> bytes_of(const std::vector<int64_t>& sizes, std::size_t element) {
  if (sizes.size() > kMostDimensions) return std::nullopt;
  auto bytes = static_cast<int64_t>(element);
  bool empty = false;
  for (const int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) return std::nullopt;
    empty = empty || size == 0;
  }
  return empty ? 0 : static_cast<uint64_t>(bytes);
}

void free_tensor(void* tensor) {
  delete static_cast<torch::Tensor*>(tensor);  // NOLINT(cppcoreguidelines-owning-memory): gRPC owned it
}

grpc::Slice slice_of(const torch::Tensor& tensor) {
  auto owner = std::make_unique<torch::Tensor>(tensor);
  void* const data = owner->data_ptr();
  return {data, tensor.nbytes(), free_tensor, owner.release()};
}

std::span<const std::byte> bytes_in(const grpc::Slice& slice) {
  return {reinterpret_cast<const std::byte*>(slice.begin()), slice.size()};
}

}  // namespace

Frame make_frame(const google::protobuf::MessageLite& message, std::span<const torch::Tensor> tensors) {
  proto::FrameHead head;
  message.SerializeToString(head.mutable_message());
  for (const torch::Tensor& tensor : tensors) {
    proto::TensorHead& each = *head.add_tensors();
    each.set_type(type_of(tensor.scalar_type()));
    for (const int64_t size : tensor.sizes()) each.add_sizes(size);
  }
  const std::size_t size = head.ByteSizeLong();
  if (size > kLongestHead) {
    fail<InvalidArgument>("[rpc] a message of ", size, " bytes is too long, wanted ", kLongestHead);
  }
  const std::string text = head.SerializeAsString();
  std::vector<grpc::Slice> slices(1);
  uint32_t sum = crc32c(std::as_bytes(std::span(text)));
  for (const torch::Tensor& tensor : tensors) {
    if (tensor.nbytes() == 0) continue;
    slices.push_back(slice_of(tensor));
    sum = crc32c(bytes_in(slices.back()), sum);
  }
  const std::array<uint32_t, 2> numbers = {static_cast<uint32_t>(size), sum};
  std::string start(kMagic.data(), kMagic.size());
  start.append(reinterpret_cast<const char*>(numbers.data()), sizeof numbers);
  slices.front() = grpc::Slice(start + text);
  return {slices.data(), slices.size()};
}

torch::Tensor on_the_way(const torch::Tensor& value, proto::ElementType type) {
  if (!value.is_floating_point()) return value;
  if (type == proto::BFLOAT16) return value.to(torch::kBFloat16);
  if (type == proto::FLOAT16) return value.to(torch::kHalf);
  return value;
}

FrameReader::FrameReader(const Frame& frame, google::protobuf::MessageLite& message) {
  if (!frame.Valid() || !frame.Dump(&slices_).ok()) damaged("it is empty");
  std::array<char, kMagic.size()> magic{};
  uint32_t length = 0;
  uint32_t sum = 0;
  if (bytes_left() < magic.size() + sizeof length + sizeof sum) damaged("it has ", bytes_left(), " bytes");
  read(magic.data(), magic.size());
  if (magic != kMagic) damaged("it does not begin with CPS2");
  read(&length, sizeof length);
  read(&sum, sizeof sum);
  const uint32_t own_sum = checksum();
  if (length > kLongestHead || length > bytes_left()) damaged("its head of ", length, " bytes is not there");
  std::string text(length, '\0');
  read(text.data(), length);
  proto::FrameHead head;
  if (!head.ParseFromString(text) || !message.ParseFromString(head.message())) damaged("its head is no message");
  read_shapes(head);
  if (sum != own_sum) damaged("it was changed on the way: its checksum is ", own_sum, ", wanted ", sum);
}

uint32_t FrameReader::checksum() const {
  uint32_t sum = 0;
  for (std::size_t i = slice_; i < slices_.size(); ++i) {
    sum = crc32c(bytes_in(slices_[i]).subspan(i == slice_ ? offset_ : 0), sum);
  }
  return sum;
}

void FrameReader::read_shapes(const proto::FrameHead& head) {
  uint64_t total = 0;
  for (const proto::TensorHead& each : head.tensors()) {
    const auto* const type =
        std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& known) { return known.first == each.type(); });
    if (type == kTypes.end()) damaged("a tensor has elements of type ", static_cast<int>(each.type()));
    Shape shape{.dtype = type->second, .sizes = {each.sizes().begin(), each.sizes().end()}, .bytes = 0};
    const std::optional<uint64_t> bytes = bytes_of(shape.sizes, c10::elementSize(shape.dtype));
    if (!bytes || __builtin_add_overflow(total, *bytes, &total)) {
      damaged("a tensor has the sizes ", c10::IntArrayRef(shape.sizes));
    }
    shape.bytes = *bytes;
    shapes_.push_back(std::move(shape));
  }
  if (total != bytes_left()) damaged("its tensors should have ", total, " bytes, they have ", bytes_left());
}

uint64_t FrameReader::bytes_left() const {
  uint64_t bytes = 0;
  for (std::size_t i = slice_; i < slices_.size(); ++i) bytes += slices_[i].size();
  return bytes - offset_;
}

void FrameReader::read(void* out, uint64_t size) {
  auto* next = static_cast<std::byte*>(out);
  while (size > 0) {
    const grpc::Slice& slice = slices_[slice_];
    const std::size_t part = std::min<uint64_t>(size, slice.size() - offset_);
    std::memcpy(next, slice.begin() + offset_, part);
    next += part;
    size -= part;
    offset_ += part;
    if (offset_ < slice.size()) continue;
    ++slice_;
    offset_ = 0;
  }
}

const FrameReader::Shape& FrameReader::next_shape() const {
  if (next_ == shapes_.size()) damaged("it has only ", shapes_.size(), " tensors");
  return shapes_[next_];
}

const std::vector<int64_t>& FrameReader::sizes() const {
  return next_shape().sizes;
}

torch::ScalarType FrameReader::dtype() const {
  return next_shape().dtype;
}

torch::Tensor FrameReader::take() {
  const Shape& shape = next_shape();
  torch::Tensor tensor = at::empty(shape.sizes, shape.dtype);
  take_bytes(tensor.data_ptr());
  return tensor;
}

void FrameReader::take_into(const torch::Tensor& out) {
  const Shape& shape = next_shape();
  if (out.sizes() != c10::IntArrayRef(shape.sizes)) {
    damaged("a tensor of ", c10::IntArrayRef(shape.sizes), " came, wanted ", out.sizes());
  }
  if (out.scalar_type() != shape.dtype) {
    const torch::NoGradGuard no_grad;
    out.detach().copy_(take());
    return;
  }
  take_bytes(out.data_ptr());
}

void FrameReader::take_bytes(void* out) {
  const Shape& shape = shapes_[next_++];
  read(out, shape.bytes);
  // A bool has no values but 0 and 1.
  const auto* const byte = static_cast<const uint8_t*>(out);
  const bool truths =
      shape.dtype != torch::kBool || std::all_of(byte, byte + shape.bytes, [](uint8_t b) { return b < 2; });
  if (!truths) damaged("a tensor of bools has other values than 0 and 1");
}

void FrameReader::finish() const {
  if (left() > 0) damaged("it has ", left(), " tensors too many");
}

}  // namespace cohort
