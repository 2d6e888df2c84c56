#include "checkpoint/safetensors.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/fail.h"
#include "device/host_memory.h"

namespace cohort {

namespace {

using Json = nlohmann::json;

struct DtypeName {
  std::string_view name;
  torch::ScalarType dtype;
};

constexpr DtypeName kDtypes[] = {
    {"F64", torch::kDouble}, {"F32", torch::kFloat}, {"F16", torch::kHalf},  {"BF16", torch::kBFloat16},
    {"I64", torch::kLong},   {"I32", torch::kInt},   {"I16", torch::kShort}, {"I8", torch::kChar},
    {"U8", torch::kByte},    {"BOOL", torch::kBool},
};

}  // namespace

std::optional<torch::ScalarType> dtype_named(std::string_view name) {
  for (const DtypeName& row : kDtypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

std::string_view name_of_dtype(torch::ScalarType dtype, const std::string& tensor) {
  for (const DtypeName& row : kDtypes) {
    if (row.dtype == dtype) return row.name;
  }
  fail<InvalidArgument>("[weights] tensor \"", tensor, "\" is of dtype ", dtype, ", which safetensors cannot hold");
}

namespace {

using Entry = SafetensorsEntry;

uint64_t to_count(const Json& value, const std::string& source, const std::string& name, std::string_view what) {
  if (value.is_number_unsigned()) {
    const auto count = value.get<uint64_t>();
    if (count <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return count;
  }
  fail<DataLoss>("[weights] ", source, ": tensor \"", name, "\": ", what, " is ", value.dump(),
                 ", wanted a non-negative integer");
}

const Json& member(const Json& object, const char* key, const std::string& source, const std::string& name) {
  const auto item = object.find(key);
  if (item == object.end()) fail<DataLoss>("[weights] ", source, ": tensor \"", name, "\" has no ", key);
  return *item;
}

Entry parse_entry(const std::string& name, const Json& value, const std::string& source) {
  if (!value.is_object())
    fail<DataLoss>("[weights] ", source, ": the entry of \"", name, "\" is ", value.type_name(), ", wanted an object");
  Entry entry{.name = name, .dtype = torch::kFloat, .shape = {}};
  const Json& dtype = member(value, "dtype", source, name);
  const auto known = dtype.is_string() ? dtype_named(dtype.get_ref<const std::string&>()) : std::nullopt;
  if (!known)
    fail<DataLoss>("[weights] ", source, ": tensor \"", name, "\" has dtype ", dtype.dump(), ", which is not known");
  entry.dtype = *known;

  const Json& shape = member(value, "shape", source, name);
  if (!shape.is_array()) fail<DataLoss>("[weights] ", source, ": tensor \"", name, "\": shape is no list");
  uint64_t bytes = c10::elementSize(entry.dtype);
  for (const Json& item : shape) {
    const uint64_t size = to_count(item, source, name, "a dimension");
    if (size != 0 && bytes > std::numeric_limits<uint64_t>::max() / size) {
      fail<DataLoss>("[weights] ", source, ": tensor \"", name, "\": shape ", shape.dump(), " is too large");
    }
    bytes *= size;
    entry.shape.push_back(static_cast<int64_t>(size));
  }

  const Json& offsets = member(value, "data_offsets", source, name);
  if (!offsets.is_array() || offsets.size() != 2) {
    fail<DataLoss>("[weights] ", source, ": tensor \"", name, "\": data_offsets is ", offsets.dump(),
                   ", wanted [begin, end]");
  }
  entry.begin = to_count(offsets[0], source, name, "data_offsets");
  entry.end = to_count(offsets[1], source, name, "data_offsets");
  if (entry.end < entry.begin || entry.end - entry.begin != bytes) {
    fail<DataLoss>("[weights] ", source, ": tensor \"", name, "\": data_offsets ", offsets.dump(), " do not hold the ",
                   bytes, " bytes of ", dtype.dump(), shape.dump());
  }
  return entry;
}

Json parse_header(std::span<const std::byte> bytes, const std::string& source) {
  // The deepest value of a valid header is a list of an entry. Values that are nested without end would overflow the
  // stack when one of them is written into an error, because each takes a frame.
  constexpr int kDeepest = 10;
  const char* text = reinterpret_cast<const char*>(bytes.data());
  const auto bounded = [&](int depth, Json::parse_event_t /*event*/, const Json& /*parsed*/) {
    if (depth <= kDeepest) return true;
    fail<DataLoss>("[weights] ", source, ": the header (from byte 8) has more than ", kDeepest,
                   " levels of brackets, wanted a map of tensors");
  };
  try {
    Json header = Json::parse(text, text + bytes.size(), bounded);
    if (!header.is_object())
      fail<DataLoss>("[weights] ", source, ": the header is ", header.type_name(), ", wanted an object");
    return header;
  } catch (const Json::exception& error) {
    fail<DataLoss>("[weights] ", source, ": the header (from byte 8) is no JSON: ", error.what());
  }
}

std::map<std::string, std::string> parse_metadata(const Json& value, const std::string& source) {
  std::map<std::string, std::string> metadata;
  if (!value.is_object())
    fail<DataLoss>("[weights] ", source, ": __metadata__ is ", value.type_name(), ", wanted an object");
  for (const auto& [key, item] : value.items()) {
    if (!item.is_string())
      fail<DataLoss>("[weights] ", source, ": __metadata__ \"", key, "\" is ", item.type_name(), ", wanted text");
    metadata.emplace(key, item.get<std::string>());
  }
  return metadata;
}

// Sorts the entries by position, and throws unless they cover the data exactly once.
void require_cover(std::vector<Entry>& entries, uint64_t size, const std::string& source) {
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t at = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != at) {
      fail<DataLoss>("[weights] ", source, ": tensor \"", entry.name, "\" begins at data byte ", entry.begin,
                     ", wanted ", at, " (tensors must follow each other without gap or overlap)");
    }
    at = entry.end;
    if (at > size) {
      fail<DataLoss>("[weights] ", source, ": tensor \"", entry.name, "\" ends at data byte ", at,
                     ", but the file holds only ", size, " (it is cut short)");
    }
  }
  if (at != size) fail<DataLoss>("[weights] ", source, ": ", size - at, " bytes after the last tensor");
}

}  // namespace

uint64_t safetensors_header_length(std::span<const std::byte> first, uint64_t size, const std::string& source) {
  uint64_t length = 0;
  if (first.size() < sizeof(length)) {
    fail<DataLoss>("[weights] ", source, ": ", first.size(), " bytes, wanted at least the 8 of the header's length");
  }
  for (int i = 7; i >= 0; --i) length = (length << 8) | std::to_integer<uint64_t>(first[static_cast<std::size_t>(i)]);
  if (length > kMaxSafetensorsHeader || length > size - sizeof(length)) {
    fail<DataLoss>("[weights] ", source, ": the header's length (bytes 0 to 7) is ", length, ", but the file has ",
                   size, " bytes and a header at most ", kMaxSafetensorsHeader);
  }
  return length;
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> header, uint64_t size,
                                           const std::string& source) {
  SafetensorsHeader parsed{.entries = {}, .metadata = {}, .data = sizeof(uint64_t) + header.size()};
  const Json json = parse_header(header, source);
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") {
      parsed.metadata = parse_metadata(value, source);
    } else {
      parsed.entries.push_back(parse_entry(name, value, source));
    }
  }
  require_cover(parsed.entries, size - parsed.data, source);
  return parsed;
}

Weights parse_safetensors(std::span<const std::byte> bytes, const std::string& source) {
  const uint64_t length = safetensors_header_length(bytes, bytes.size(), source);
  SafetensorsHeader header = parse_safetensors_header(bytes.subspan(sizeof(length), length), bytes.size(), source);
  const auto data = bytes.subspan(header.data);
  Weights weights{.tensors = {}, .metadata = std::move(header.metadata)};
  for (const Entry& entry : header.entries) {
    torch::Tensor tensor = at::empty(entry.shape, torch::TensorOptions(entry.dtype));
    if (entry.end > entry.begin)
      std::memcpy(host_bytes(tensor).data(), data.data() + entry.begin, entry.end - entry.begin);
    weights.tensors.emplace_back(entry.name, std::move(tensor));
  }
  return weights;
}

NamedTensors safetensors_order(NamedTensors tensors) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return a.second.element_size() != b.second.element_size() ? a.second.element_size() > b.second.element_size()
                                                              : a.first < b.first;
  });
  return tensors;
}

std::string safetensors_header(const NamedTensors& ordered, const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t at = 0;
  for (const auto& [name, tensor] : ordered) {
    if (name == "__metadata__" || header.contains(name)) {
      fail<InvalidArgument>("[weights] the name \"", name, "\" is ",
                            name == "__metadata__" ? "reserved" : "given twice");
    }
    const uint64_t end = at + static_cast<uint64_t>(tensor.numel()) * tensor.element_size();
    header[name] = {{"dtype", name_of_dtype(tensor.scalar_type(), name)},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // so that the data is aligned
  std::string length(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>((text.size() >> (8 * i)) & 0xff);
  return length + text;
}

}  // namespace cohort
