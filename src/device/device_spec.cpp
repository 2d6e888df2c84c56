#include <algorithm>
#include <array>
#include <cctype>

#include "base/fail.h"
#include "base/number_in.h"
#include "cohort/device.h"

namespace cohort {

namespace {

constexpr std::array<std::string_view, 6> kTypes = {"CPU", "GPU", "TPU", "XLA", "EPU", "CUSTOM"};

std::string upper(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) { return std::toupper(c); });
  return result;
}

bool is_type(std::string_view text) {
  const std::string name = upper(text);
  return std::find(kTypes.begin(), kTypes.end(), name) != kTypes.end();
}

int to_number(std::string_view whole, std::string_view what, std::string_view text) {
  const std::optional<int> number = parse_int(text);
  if (number && *number >= 0) return *number;
  fail<InvalidArgument>("[device] \"", whole, "\": the ", what, " must be a number, not \"", text, "\"");
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

void set_type(DeviceSpec& spec, std::string_view whole, std::string_view type, std::optional<std::string_view> index) {
  if (spec.type) {
    fail<InvalidArgument>("[device] \"", whole, "\" names two device types, ", *spec.type, " and ", upper(type));
  }
  if (!is_type(type)) {
    fail<InvalidArgument>("[device] \"", whole, "\": device type \"", type,
                          "\" is not known; CPU, GPU, TPU, XLA, EPU and CUSTOM are");
  }
  spec.type = upper(type);
  if (index && *index != "*") spec.index = to_number(whole, "index", *index);
}

void parse_part(DeviceSpec& spec, std::string_view whole, std::string_view part) {
  const auto fields = split(part, ':');
  const std::string_view key = fields[0];
  const auto value = [&] {
    if (fields.size() != 2 || fields[1].empty()) {
      fail<InvalidArgument>("[device] \"", whole, "\": \"", part, "\" should be ", key, ":<value>");
    }
    return fields[1];
  };
  if (key == "job") {
    spec.job = std::string(value());
  } else if (key == "replica") {
    spec.replica = to_number(whole, "replica", value());
  } else if (key == "task") {
    spec.task = to_number(whole, "task", value());
  } else if (key == "device" && (fields.size() == 2 || fields.size() == 3)) {
    set_type(spec, whole, fields[1], fields.size() == 3 ? std::optional(fields[2]) : std::nullopt);
  } else if (is_type(key) && fields.size() <= 2) {
    set_type(spec, whole, key, fields.size() == 2 ? std::optional(fields[1]) : std::nullopt);
  } else {
    fail<InvalidArgument>("[device] \"", whole, "\": unknown attribute \"", part,
                          "\"; job, replica, task, device and the device "
                          "types are known");
  }
}

}  // namespace

DeviceSpec DeviceSpec::parse(std::string_view text) {
  DeviceSpec spec;
  std::string_view rest = text;
  if (rest.starts_with('/')) rest.remove_prefix(1);
  if (rest.empty()) return spec;
  for (const std::string_view part : split(rest, '/')) parse_part(spec, text, part);
  return spec;
}

std::string DeviceSpec::to_string() const {
  std::string text;
  if (job) text += "/job:" + *job;
  if (replica) text += "/replica:" + std::to_string(*replica);
  if (task) text += "/task:" + std::to_string(*task);
  if (type) text += "/device:" + *type + ":" + (index ? std::to_string(*index) : "*");
  return text;
}

std::string DeviceSpec::short_form() const {
  if (!type) return {};
  return "/" + *type + ":" + (index ? std::to_string(*index) : "*");
}

DeviceSpec DeviceSpec::merged_into(const DeviceSpec& outer) const {
  DeviceSpec merged = outer;
  if (job) merged.job = job;
  if (replica) merged.replica = replica;
  if (task) merged.task = task;
  if (type) {
    merged.type = type;
    merged.index = index;
  }
  return merged;
}

DeviceSpec DeviceSpec::canonical() const {
  return {.job = job.value_or("localhost"),
          .replica = replica.value_or(0),
          .task = task.value_or(0),
          .type = type.value_or("CPU"),
          .index = index.value_or(0)};
}

DeviceSpec DeviceSpec::host() const {
  DeviceSpec spec = *this;
  spec.type = "CPU";
  spec.index = 0;
  return spec;
}

}  // namespace cohort
