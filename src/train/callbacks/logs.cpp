#include <algorithm>

#include "base/fail.h"
#include "cohort/train/callbacks.h"

namespace cohort {

namespace {

template <typename List>
auto find_name(List& list, std::string_view name) {
  return std::find_if(list.begin(), list.end(), [&](const auto& item) { return item.first == name; });
}

template <typename List>
[[noreturn]] void fail_unknown(const List& list, std::string_view what, std::string_view name) {
  std::string names;
  for (const auto& item : list) names += (names.empty() ? "" : ", ") + item.first;
  fail<NotFound>("[model] the ", what, " have no \"", name, "\"; there are ", names.empty() ? "none" : names);
}

}  // namespace

void Logs::set(std::string_view name, double value) {
  const auto item = find_name(items_, name);
  if (item == items_.end()) {
    items_.emplace_back(name, value);
  } else {
    item->second = value;
  }
}

std::optional<double> Logs::find(std::string_view name) const {
  const auto item = find_name(items_, name);
  return item == items_.end() ? std::nullopt : std::optional(item->second);
}

double Logs::operator[](std::string_view name) const {
  const auto value = find(name);
  if (!value) fail_unknown(items_, "logs", name);
  return *value;
}

const std::vector<double>& History::operator[](std::string_view name) const {
  const auto item = find_name(series_, name);
  if (item == series_.end()) fail_unknown(series_, "epochs' logs", name);
  return item->second;
}

bool History::contains(std::string_view name) const {
  return find_name(series_, name) != series_.end();
}

std::vector<std::string> History::names() const {
  std::vector<std::string> names;
  for (const auto& item : series_) names.push_back(item.first);
  return names;
}

void History::append(int64_t epoch, const Logs& logs) {
  epochs_.push_back(epoch);
  for (const auto& [name, value] : logs) {
    if (!contains(name)) series_.emplace_back(name, std::vector<double>());
    find_name(series_, name)->second.push_back(value);
  }
}

}  // namespace cohort
