#include "device/visible_cards.h"

#include <algorithm>
#include <set>

#include "base/fail.h"
#include "base/number_in.h"

namespace cohort {

namespace {

constexpr std::string_view kGpu = "GPU-";
constexpr std::string_view kMig = "MIG-";
constexpr std::string_view kHexadecimal = "0123456789abcdefABCDEF-";

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

bool is_uuid(std::string_view text) {
  return !text.empty() && text.find_first_not_of(kHexadecimal) == std::string_view::npos;
}

// "GPU-<uuid>/<gpu instance>/<compute instance>" or "<uuid>".
bool is_instance(std::string_view text) {
  if (!text.starts_with(kGpu)) return is_uuid(text);
  text.remove_prefix(kGpu.size());
  const std::size_t first = text.find('/');
  const std::size_t second = first == std::string_view::npos ? first : text.find('/', first + 1);
  if (second == std::string_view::npos) return false;
  const auto gpu = parse_int(text.substr(first + 1, second - first - 1));
  const auto compute = parse_int(text.substr(second + 1));
  return is_uuid(text.substr(0, first)) && gpu && *gpu >= 0 && compute && *compute >= 0;
}

VisibleCard parse_entry(std::string_view entry, std::string_view whole) {
  VisibleCard card{.kind = VisibleCard::Kind::kIndex, .index = -1, .name = std::string(entry)};
  if (const auto index = parse_int(entry); index && *index >= 0) {
    card.index = *index;
    return card;
  }
  if (entry.starts_with(kMig) && is_instance(entry.substr(kMig.size()))) {
    card.kind = VisibleCard::Kind::kMig;
    return card;
  }
  if (entry.starts_with(kGpu) && is_uuid(entry.substr(kGpu.size()))) {
    card.kind = VisibleCard::Kind::kUuid;
    return card;
  }
  fail<InvalidArgument>(
      "[device] ", kVisibleCards, " is \"", whole, "\", of which \"", entry,
      "\" is no GPU; wanted numbers, GPU-<uuid>, MIG-<uuid> or MIG-GPU-<uuid>/<instance>/<instance>, ",
      "separated by commas");
}

}  // namespace

std::vector<VisibleCard> parse_visible_cards(std::string_view text) {
  const std::string_view all = trimmed(text);
  if (all.empty() || all == "-1" || all == "NoDevFiles") return {};
  std::vector<VisibleCard> cards;
  std::set<std::string> known;
  for (std::string_view rest = all; !rest.empty();) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view entry = trimmed(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    if (entry == "-1") break;  // CUDA's end of the list
    cards.push_back(parse_entry(entry, all));
    if (known.insert(cards.back().name).second) continue;
    fail<InvalidArgument>("[device] ", kVisibleCards, " is \"", all, "\", which names \"", entry, "\" twice");
  }
  return cards;
}

std::string why_cards_are_hidden(const std::optional<std::string>& variable, int count) {
  if (!variable) return "";
  std::string is = c10::str(kVisibleCards, " is \"", *variable, "\"");
  std::vector<VisibleCard> cards;
  try {
    cards = parse_visible_cards(*variable);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  if (cards.empty()) return is + ", which hides every GPU";
  const auto named = static_cast<int>(cards.size());
  if (named == count) return is + (named == 1 ? ", which shows one GPU" : c10::str(", which shows ", named, " GPUs"));
  const bool instances = std::any_of(cards.begin(), cards.end(),
                                     [](const VisibleCard& card) { return card.kind == VisibleCard::Kind::kMig; });
  if (instances && count == 1) return is + ", but CUDA gives a process one instance of a GPU, the first of them";
  if (count < named) {
    const std::string& unknown = cards[static_cast<std::size_t>(std::max(count, 0))].name;
    return c10::str(is, ", which names ", named, ", but CUDA finds ", count, ": the driver knows no \"", unknown, "\"");
  }
  return is;
}

}  // namespace cohort
