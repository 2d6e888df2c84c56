// A configuration is a list of described fields that point into structs. Every layer (a file, an override, gin, a flag)
// becomes a tree of ConfigValues, which is laid over the fields; what a field accepts, its description decides.
#include "cohort/models/config.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/edit_distance.h"
#include "base/extension.h"
#include "base/fail.h"
#include "base/regular_file.h"
#include "config/gin.h"
#include "config/relation.h"
#include "config/text.h"
#include "config/types.h"

namespace cohort {

namespace {

std::string_view last_name(std::string_view path) {
  return path.substr(path.rfind('.') + 1);  // npos + 1 is 0
}

std::string nearest(const std::string& path, const std::vector<ConfigFields::Field>& fields) {
  std::string best;
  std::size_t least = path.size() / 2 + 1;
  for (const ConfigFields::Field& field : fields) {
    // A right name in a wrong place is near, and so is a path without its beginning.
    const bool same_name = last_name(field.path) == last_name(path);
    const std::size_t longer = field.path.size() > path.size() ? field.path.find('.') + 1 : 0;
    const std::size_t distance =
        std::min({edit_distance(path, field.path), edit_distance(path, std::string_view(field.path).substr(longer)),
                  same_name ? std::size_t{1} : path.size()});
    if (distance < least) {
      least = distance;
      best = field.path;
    }
  }
  return best.empty() ? "" : "; did you mean " + best + "?";
}

}  // namespace

std::string read_config_text(const std::filesystem::path& file) {
  try {
    if (const auto text = read_file_or_pipe(file, "config")) return *text;
  } catch (const Unavailable& error) {
    fail<InvalidArgument>(error.what());
  }
  fail<NotFound>("[config] ", file.string(), ": cannot be opened: there is no such file");
}

ConfigFields::Field& ConfigFields::add(std::string_view name, Target target,
                                       std::shared_ptr<const std::atomic<bool>> read, std::string help,
                                       std::vector<std::string> choices) {
  const std::string path = prefix_ + std::string(name);
  if (std::any_of(fields_.begin(), fields_.end(), [&](const Field& field) { return field.path == path; })) {
    fail<InvalidArgument>("[config] the field ", path, " is there twice");
  }
  fields_.push_back({.path = path,
                     .target = target,
                     .help = std::move(help),
                     .choices = std::move(choices),
                     .default_value = to_text(target),
                     .read = std::move(read)});
  return fields_.back();
}

void ConfigFields::restrict(std::string_view relation) {
  const Relation parsed = parse_relation(relation);
  const std::string path = prefix_ + parsed.left;
  for (Field& field : fields_) {
    if (field.path == path) field.bounds.push_back(parsed.operation + " " + parsed.right);
  }
  restrictions_.push_back({prefix_, std::string(relation)});
}

Config::Config(const std::function<void(ConfigFields&)>& describe) {
  describe(fields_);
}

void Config::apply_file(const std::filesystem::path& file) {
  apply_yaml(read_config_text(file), file.string());
}

void Config::apply_yaml(std::string_view text, const std::string& origin) {
  const ConfigValue value = parse_yaml(text, origin);
  if (value.kind == ConfigValue::Kind::kNull) return;
  if (value.kind != ConfigValue::Kind::kMap) {
    fail<InvalidArgument>("[config] ", origin, ": this is ", to_text(value), ", wanted a map of keys to values");
  }
  apply(value, "", origin);
}

void Config::apply_override(const std::string& text, const std::string& origin) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(text, ignored)) return apply_file(text);
  // Assignments begin with a key and "=", which YAML would take for a text.
  const std::size_t key_end =
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_. ");
  if (key_end != std::string::npos && text[key_end] == '=') return apply(parse_assignments(text, origin), "", origin);
  const ConfigValue value = parse_yaml(text, origin);
  if (value.kind == ConfigValue::Kind::kNull) return;
  if (value.kind != ConfigValue::Kind::kMap) {
    fail<InvalidArgument>("[config] ", origin, ": \"", text, "\", wanted key=value, YAML or the name of a file");
  }
  apply(value, "", origin);
}

void Config::set(const std::string& path, const std::string& value, const std::string& origin) {
  set_field(find(path, origin), {.kind = ConfigValue::Kind::kScalar, .text = value}, origin);
}

void Config::reset(const std::string& path) {
  ConfigFields::Field& field = find(path, "reset");
  set_field(field, parse_yaml(field.default_value, "the default"), "");
}

void Config::apply(const ConfigValue& value, const std::string& prefix, const std::string& origin) {
  for (const auto& [key, member] : value.members) {
    const std::string path = prefix + key;
    const std::string beginning = path + ".";
    const bool group = std::any_of(fields_.fields_.begin(), fields_.fields_.end(),
                                   [&](const ConfigFields::Field& field) { return field.path.starts_with(beginning); });
    if (group && member.kind == ConfigValue::Kind::kMap) {
      apply(member, beginning, origin);
    } else if (group && member.kind != ConfigValue::Kind::kNull) {
      fail<InvalidArgument>("[config] ", origin, ": ", path, " is ", to_text(member), ", wanted a map of its keys");
    } else if (!group) {
      const std::string where = member.line > 0 && std::filesystem::path(origin).has_extension()
                                    ? c10::str(origin, ", line ", member.line)
                                    : origin;
      set_field(find(path, where), member, where);
    }
  }
}

const ConfigFields::Field* Config::field_at(const std::string& path) const {
  for (const ConfigFields::Field& field : fields_.fields_) {
    if (field.path == path) return &field;
  }
  return nullptr;
}

ConfigFields::Field& Config::find(const std::string& path, const std::string& origin) {
  for (ConfigFields::Field& field : fields_.fields_) {
    if (field.path == path) return field;
  }
  fail<NotFound>("[config] ", origin, ": there is no key ", path, nearest(path, fields_.fields_));
}

void Config::set_field(ConfigFields::Field& field, const ConfigValue& value, const std::string& origin) const {
  if (locked_) {
    fail<FailedPrecondition>("[config] ", origin, ": ", field.path, " cannot be set: the configuration is locked");
  }
  const std::string before = field.choices.empty() ? "" : *std::get<std::string*>(field.target);
  if (!assign(field.target, value)) {
    fail<InvalidArgument>("[config] ", origin, ": ", field.path, " is ", to_text(value), ", wanted ",
                          type_name(field.target));
  }
  if (!field.choices.empty()) require_choice(field, before, origin);
  field.origin = origin;
}

// Fails, and sets the field back to what it was before, if its value is none of its choices.
void Config::require_choice(const ConfigFields::Field& field, const std::string& before, const std::string& origin) {
  std::string& value = *std::get<std::string*>(field.target);
  if (std::find(field.choices.begin(), field.choices.end(), value) != field.choices.end()) return;
  const std::string chosen = std::exchange(value, before);
  std::string known;
  for (const std::string& each : field.choices) known += (known.empty() ? "" : ", ") + (each.empty() ? "\"\"" : each);
  fail<InvalidArgument>("[config] ", origin, ": ", field.path, " is \"", chosen, "\", wanted one of ", known);
}

void Config::apply_gin_file(const std::filesystem::path& file) {
  apply_gin_text(read_config_text(file), file.string(), file.parent_path());
}

void Config::apply_gin(std::string_view text, const std::string& origin) {
  apply_gin_text(text, origin, "");
}

void Config::apply_gin_text(std::string_view text, const std::string& origin, const std::filesystem::path& folder) {
  const auto& format = extension_of<GinFormat>("gin", "[config] " + origin + ": bindings in gin's format came");
  format.read({.text = text, .origin = origin, .folder = folder}, macros_, [this](const GinBinding& binding) {
    set_field(find(full_path(binding.name, binding.place), binding.place), binding.value, binding.origin);
  });
}

std::string Config::full_path(const std::string& shortened, const std::string& origin) const {
  std::vector<std::string> matches;
  for (const ConfigFields::Field& field : fields_.fields_) {
    if (field.path == shortened) return shortened;
    if (field.path.ends_with("." + shortened)) matches.push_back(field.path);
  }
  if (matches.size() > 1) {
    fail<InvalidArgument>("[config] ", origin, ": ", shortened, " may be ", matches[0], " or ", matches[1],
                          "; write more of the path");
  }
  return matches.empty() ? shortened : matches.front();
}

void Config::lock() {
  for (const ConfigFields::Restriction& each : fields_.restrictions_) check(each);
  locked_ = true;
}

void Config::check(const ConfigFields::Restriction& restriction) const {
  const Relation relation = parse_relation(restriction.relation);
  const auto value_of = [&](const std::string& term) {
    const ConfigFields::Field* field = field_at(restriction.prefix + term);
    if (field == nullptr) return term;
    const std::string* const* text = std::get_if<std::string*>(&field->target);
    return text != nullptr ? **text : to_text(field->target);
  };
  const std::string left = value_of(relation.left);
  const std::string right = value_of(relation.right);
  if (holds(relation, left, right)) return;
  const ConfigFields::Field* field = field_at(restriction.prefix + relation.left);
  const std::string origin = field == nullptr || field->origin.empty() ? "" : " (" + field->origin + ")";
  fail<InvalidArgument>("[config] ", restriction.prefix, relation.left, " is ", left.empty() ? "\"\"" : left, origin,
                        ", wanted ", relation.operation, " ", relation.right,
                        right == relation.right ? "" : " (" + right + ")");
}

std::vector<Config::Change> Config::changes() const {
  std::vector<Change> list;
  for (const ConfigFields::Field& field : fields_.fields_) {
    const std::string value = to_text(field.target);
    if (value != field.default_value) list.push_back({field.path, value, field.origin});
  }
  return list;
}

std::vector<Config::Change> Config::unread() const {
  std::vector<Change> list;
  for (const ConfigFields::Field& field : fields_.fields_) {
    if (field.origin.empty() || field.read->load()) continue;
    const std::string value = to_text(field.target);
    if (value != field.default_value) list.push_back({field.path, value, field.origin});
  }
  return list;
}

bool Config::was_read(const std::string& path) const {
  const ConfigFields::Field* field = field_at(path);
  if (field == nullptr) fail<NotFound>("[config] there is no key ", path, nearest(path, fields_.fields_));
  return field->read->load();
}

void Config::require_read(const std::string& run) const {
  std::string list;
  for (const Change& change : unread()) {
    const ConfigFields::Field& field = *field_at(change.path);
    list += c10::str("\n  ", change.path, " is ", change.value, " (", change.origin, "): ", why_unread(field),
                     "; its default is ", field.default_value);
  }
  if (!list.empty()) fail<InvalidArgument>("[config] ", run, " has no use for what was set:", list);
}

// Says why nothing has read the field. Where a group has a type and an inner group for each type, the fields of the
// types that are not chosen are not for this run.
std::string Config::why_unread(const ConfigFields::Field& field) const {
  for (std::size_t dot = field.path.find('.'); dot != std::string::npos; dot = field.path.find('.', dot + 1)) {
    const std::string group = field.path.substr(0, dot);
    const std::string member = field.path.substr(dot + 1, field.path.find('.', dot + 1) - dot - 1);
    const ConfigFields::Field* type = field_at(group + ".type");
    if (type == nullptr || std::find(type->choices.begin(), type->choices.end(), member) == type->choices.end())
      continue;
    const std::string& chosen = *std::get<std::string*>(type->target);
    if (chosen == member) continue;
    return c10::str("that is for ", type->path, " ", member, ", and the type is ", chosen.empty() ? "\"\"" : chosen);
  }
  return "nothing reads it here (" + field.help + ")";
}

std::string Config::to_yaml() const {
  std::string text;
  std::vector<std::string> open;  // groups
  for (const ConfigFields::Field& field : fields_.fields_) {
    std::vector<std::string> names;
    std::istringstream path(field.path);
    for (std::string name; std::getline(path, name, '.');) names.push_back(name);
    std::size_t common = 0;
    while (common < open.size() && common + 1 < names.size() && open[common] == names[common]) ++common;
    open.resize(common);
    for (; common + 1 < names.size(); ++common) {
      text += std::string(2 * common, ' ') + names[common] + ":\n";
      open.push_back(names[common]);
    }
    text += std::string(2 * common, ' ') + names.back() + ": " + to_text(field.target) + "\n";
  }
  return text;
}

std::string Config::help() const {
  std::string text;
  for (const ConfigFields::Field& field : fields_.fields_) {
    std::string choices = field.names.empty() ? "" : ": " + field.names;
    for (const std::string& each : field.choices)
      choices += (choices.empty() ? "; " : ", ") + (each.empty() ? "\"\"" : each);
    std::string bounds;
    for (const std::string& each : field.bounds) bounds += (bounds.empty() ? "; wanted " : ", ") + each;
    text += c10::str(field.path, "  (", type_name(field.target), ", default ", field.default_value, ")\n    ",
                     field.help, choices, bounds, field.flag.empty() ? "" : "; " + field.flag, "\n");
  }
  return text;
}

}  // namespace cohort
