// A message is a head of a fixed size, the rest of a head that is longer, and the values that have elements. The head
// is read and written by a pointer.
#include "wings/pipeline/strategy/messages.h"

#include <ATen/Functions.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "base/fail.h"

namespace cohort {

namespace {

constexpr int64_t kHead = 64;  // words of 64 bits
constexpr int64_t kLongest = int64_t{1} << 20;
constexpr int64_t kFixed = 5;  // words before those of the values
constexpr int64_t kMostDims = 64;
constexpr int kTag = 1;
constexpr int64_t kLearns = 1, kOnCard = 2;  // bits of a value's word

using Words = std::vector<int64_t>;

Words head_of(const StageMessage& message) {
  Words words = {0, static_cast<int64_t>(message.kind), message.microbatch, message.chunk,
                 static_cast<int64_t>(message.values.size())};
  for (const torch::Tensor& value : message.values) {
    words.push_back(value.defined() ? value.dim() : -1);
    if (!value.defined()) continue;
    words.push_back(static_cast<int64_t>(value.scalar_type()));
    words.push_back((value.requires_grad() ? kLearns : 0) | (value.is_cpu() ? 0 : kOnCard));
    words.insert(words.end(), value.sizes().begin(), value.sizes().end());
  }
  words.front() = static_cast<int64_t>(words.size());
  words.resize(static_cast<std::size_t>(std::max<int64_t>(kHead, words.front())));
  return words;
}

torch::Tensor tensor_of(const Words& words, int64_t begin, int64_t end) {
  torch::Tensor tensor = at::empty({end - begin}, torch::kLong);
  std::copy(words.begin() + begin, words.begin() + end, tensor.data_ptr<int64_t>());
  return tensor;
}

void append(Words& words, const torch::Tensor& tensor) {
  const auto* first = tensor.data_ptr<int64_t>();
  words.insert(words.end(), first, first + tensor.numel());
}

[[noreturn]] void fail_head(int from) {
  fail<DataLoss>("[pipeline] rank ", from, " of a line of stages sent a message whose head says what cannot be");
}

int64_t size_of(const Words& words, int from) {
  const int64_t size = words.front();
  if (size < kFixed || size > kLongest) fail_head(from);
  return size;
}

// Returns the message with values that are not filled yet, and the bits of each.
std::pair<StageMessage, std::vector<int64_t>> parse(const Words& words, int from) {
  const int64_t size = size_of(words, from);
  int64_t next = 1;
  const auto take = [&](int64_t least, int64_t most) {
    if (next >= size) fail_head(from);
    const int64_t word = words[static_cast<std::size_t>(next++)];
    if (word < least || word > most) fail_head(from);
    return word;
  };
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  StageMessage message;
  message.kind = static_cast<StageMessage::Kind>(take(0, 2));
  message.microbatch = take(0, kMost);
  message.chunk = take(0, kMost);
  const int64_t count = take(0, kLongest);
  std::vector<int64_t> bits;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t dims = take(-1, kMostDims);
    message.values.emplace_back();
    bits.push_back(0);
    if (dims < 0) continue;
    const auto dtype = static_cast<torch::ScalarType>(take(0, static_cast<int64_t>(torch::kBFloat16)));
    bits.back() = take(0, kLearns | kOnCard);
    if (!c10::isFloatingType(dtype)) bits.back() &= kOnCard;
    std::vector<int64_t> sizes;
    double elements = 1.0;
    for (int64_t d = 0; d < dims; ++d) {
      sizes.push_back(take(0, std::numeric_limits<int64_t>::max()));
      elements *= static_cast<double>(sizes.back());
    }
    if (elements > 0x1p46) fail_head(from);
    message.values.back() = at::empty(sizes, dtype);
  }
  return {std::move(message), std::move(bits)};
}

// Moves the received values to the device if the sender had them on a card, and restores requires_grad.
void place(StageMessage& message, const std::vector<int64_t>& bits, torch::Device device) {
  for (std::size_t i = 0; i < bits.size(); ++i) {
    torch::Tensor& value = message.values[i];
    if ((bits[i] & kOnCard) != 0) value = value.to(device);
    if ((bits[i] & kLearns) != 0) value.set_requires_grad(true);
  }
}

// Returns the values that travel, which have elements, in the host's memory.
std::vector<torch::Tensor> filled(const std::vector<torch::Tensor>& values) {
  std::vector<torch::Tensor> list;
  for (const torch::Tensor& value : values) {
    if (value.defined() && value.numel() > 0) list.push_back(value.detach().cpu().contiguous());
  }
  return list;
}

}  // namespace

std::vector<Work<>> send_message(Communicator& line, int to, const StageMessage& message) {
  const torch::NoGradGuard no_grad;
  const Peer peer{.rank = to, .tag = kTag};
  const Words words = head_of(message);
  const auto size = static_cast<int64_t>(words.size());
  std::vector<Work<>> works = {line.send_async(tensor_of(words, 0, kHead), peer)};
  if (size > kHead) works.push_back(line.send_async(tensor_of(words, kHead, size), peer));
  for (const torch::Tensor& value : filled(message.values)) works.push_back(line.send_async(value, peer));
  return works;
}

StageMessage receive_message(Communicator& line, int from, torch::Device device) {
  const torch::NoGradGuard no_grad;
  const Peer peer{.rank = from, .tag = kTag};
  Words words;
  const auto read = [&](int64_t count) {
    const torch::Tensor part = at::empty({count}, torch::kLong);
    line.recv_async(part, peer).wait();
    append(words, part);
  };
  read(kHead);
  if (const int64_t size = size_of(words, from); size > kHead) read(size - kHead);
  auto [message, bits] = parse(words, from);
  std::vector<Work<>> works;
  for (const torch::Tensor& value : message.values) {
    if (value.defined() && value.numel() > 0) works.push_back(line.recv_async(value, peer));
  }
  for (const Work<>& work : works) work.wait();
  place(message, bits, device);
  return std::move(message);
}

StageMessage broadcast_message(Communicator& line, int root, torch::Device device, StageMessage message) {
  const torch::NoGradGuard no_grad;
  const bool gives = line.rank() == root;
  Words words = gives ? head_of(message) : Words(kHead);
  const auto share = [&](int64_t begin, int64_t end) {
    torch::Tensor part = tensor_of(words, begin, end);
    line.broadcast({&part, 1}, root);
    std::copy_n(part.data_ptr<int64_t>(), end - begin, words.begin() + begin);
  };
  share(0, kHead);
  const int64_t size = size_of(words, root);
  words.resize(static_cast<std::size_t>(std::max(kHead, size)));
  if (size > kHead) share(kHead, size);
  std::vector<int64_t> bits;
  if (!gives) std::tie(message, bits) = parse(words, root);
  std::vector<torch::Tensor> tensors = filled(message.values);
  if (!tensors.empty()) line.broadcast(tensors, root);
  place(message, bits, device);
  return message;
}

}  // namespace cohort
