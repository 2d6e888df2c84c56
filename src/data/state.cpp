#include "data/state.h"

#include <ATen/Functions.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "base/fail.h"
#include "device/host_memory.h"

namespace cohort {

namespace {

constexpr std::string_view kMagic = "COHORT1\n";
constexpr std::size_t kCrcBytes = 4;

void append_number(std::string& bytes, uint64_t number, int width) {
  for (int i = 0; i < width; ++i) bytes.push_back(static_cast<char>((number >> (8 * i)) & 0xff));
}

uint64_t read_number(std::string_view bytes, int width) {
  uint64_t number = 0;
  for (int i = width - 1; i >= 0; --i)
    number = (number << 8) | static_cast<unsigned char>(bytes[static_cast<std::size_t>(i)]);
  return number;
}

uint32_t crc_of(std::string_view bytes) {
  return static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

torch::Tensor read_tensor(const nlohmann::json& entry, std::string_view& data, const std::string& source) {
  const auto dtype = entry.at("dtype").get<int>();
  const bool plain = dtype >= 0 && dtype < static_cast<int>(torch::ScalarType::NumOptions) &&
                     dtype != static_cast<int>(torch::ScalarType::Undefined) &&
                     !c10::isQIntType(static_cast<torch::ScalarType>(dtype));
  if (!plain) {
    fail<DataLoss>("[data] ", source, ": dtype ", dtype, " is not known");
  }
  const auto shape = entry.at("shape").get<std::vector<int64_t>>();
  auto bytes = static_cast<uint64_t>(c10::elementSize(static_cast<torch::ScalarType>(dtype)));
  auto extent = static_cast<int64_t>(bytes);
  for (const int64_t size : shape) {
    // The strides must fit too, so that a size of zero hides no impossible one.
    if (size < 0 || __builtin_mul_overflow(extent, std::max<int64_t>(size, 1), &extent)) {
      fail<DataLoss>("[data] ", source, ": the shape ", at::IntArrayRef(shape), " is impossible");
    }
    bytes *= static_cast<uint64_t>(size);
  }
  if (bytes > data.size())
    fail<DataLoss>("[data] ", source, ": a tensor of ", bytes, " bytes, but only ", data.size(), " are left");
  torch::Tensor tensor = at::empty(shape, torch::TensorOptions(static_cast<torch::ScalarType>(dtype)));
  if (bytes > 0) std::memcpy(host_bytes(tensor).data(), data.data(), bytes);
  data.remove_prefix(bytes);
  return tensor;
}

}  // namespace

std::string to_bytes(const IteratorState& state) {
  nlohmann::json header{{"tree", state.tree}, {"tensors", nlohmann::json::array()}};
  std::string data;
  for (const torch::Tensor& tensor : state.tensors) {
    const torch::Tensor dense = tensor.to(torch::kCPU).contiguous();
    header["tensors"].push_back({{"dtype", static_cast<int>(dense.scalar_type())}, {"shape", dense.sizes().vec()}});
    data.append(host_text(dense));
  }
  const std::string text = header.dump();
  std::string bytes(kMagic);
  append_number(bytes, text.size(), 8);
  bytes += text;
  bytes += data;
  append_number(bytes, crc_of(bytes), kCrcBytes);
  return bytes;
}

IteratorState from_bytes(std::string_view bytes, const std::string& source) {
  constexpr std::size_t kPrefix = kMagic.size() + 8;
  if (bytes.size() < kPrefix + kCrcBytes || !bytes.starts_with(kMagic)) {
    fail<DataLoss>("[data] ", source, ": ", bytes.size(), " bytes that do not begin with the mark of a saved state");
  }
  const std::string_view body = bytes.substr(0, bytes.size() - kCrcBytes);
  const auto crc = static_cast<uint32_t>(read_number(bytes.substr(body.size()), kCrcBytes));
  if (crc != crc_of(body)) fail<DataLoss>("[data] ", source, ": the checksum of its ", bytes.size(), " bytes is wrong");
  const uint64_t length = read_number(body.substr(kMagic.size()), 8);
  if (length > body.size() - kPrefix)
    fail<DataLoss>("[data] ", source, ": a header of ", length, " bytes does not fit");
  try {
    const auto header = nlohmann::json::parse(body.substr(kPrefix, length));
    std::string_view data = body.substr(kPrefix + length);
    IteratorState state{.tree = header.at("tree"), .tensors = {}};
    for (const auto& entry : header.at("tensors")) state.tensors.push_back(read_tensor(entry, data, source));
    return state;
  } catch (const nlohmann::json::exception& error) {
    fail<DataLoss>("[data] ", source, ": ", error.what());
  }
}

void restore_from(std::string_view bytes, const std::string& source,
                  const std::function<void(const IteratorState&)>& restore) {
  const IteratorState state = from_bytes(bytes, source);
  const auto refuse = [&](const std::exception& error) {
    fail<InvalidArgument>("[data] ", source, ": it belongs to another pipeline: ", error.what());
  };
  try {
    restore(state);
  } catch (const nlohmann::json::exception& error) {
    refuse(error);
  } catch (const std::out_of_range& error) {
    refuse(error);
  }
}

}  // namespace cohort
