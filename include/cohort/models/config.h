// Configurations: typed structs whose fields have names, defaults and meanings, and the layers that set them.
//
//   struct TrainerConfig {
//     Setting<int64_t> train_steps = 0;
//     void describe(ConfigFields& fields) { fields.add("train_steps", train_steps, "global steps to reach"); }
//   };
//   TrainerConfig trainer;
//   Config config([&](ConfigFields& fields) { fields.nest("trainer", trainer); });
//   config.apply_file("small.yaml");
//   config.apply_override("trainer.train_steps=100");
//   config.lock();
//   ...  // set up what trainer.train_steps is for
//   config.require_read("training");
//
// Keys are paths ("trainer.train_steps"). A key that is not there is NotFound and suggests the nearest; a value of
// another type is InvalidArgument; both say where it came from. What was set has its effect or is an error: a field
// knows whether it was read (cohort/models/setting.h), and require_read() refuses those that were set for nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cohort/models/setting.h"

namespace cohort {

// A value as a file or a flag has it, before a field gives it its type.
struct ConfigValue {
  // What sort of value it is.
  enum class Kind { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;                                        // which of the following members has the value
  std::string text = {};                                          // of a scalar
  std::vector<ConfigValue> items = {};                            // of a list
  std::vector<std::pair<std::string, ConfigValue>> members = {};  // of a map, in the order of the text
  int64_t line = 0;                                               // of its text, from 1; 0: not known
};

// Collects the fields of structs; describe() of a struct calls it. The structs have to outlive it.
class ConfigFields {
 public:
  // Where a field's value lies.
  using Target = std::variant<bool*, int64_t*, double*, std::string*, std::vector<int64_t>*, std::vector<double>*,
                              std::vector<std::string>*>;
  // A field as the configuration sees it.
  struct Field {
    std::string path;                               // names from the outermost struct, with dots between
    Target target;                                  // where the value lies
    std::string help;                               // what the field means
    std::vector<std::string> choices;               // of a text; empty: any
    std::string default_value;                      // as YAML
    std::string origin;                             // who has set it; empty: the default
    std::shared_ptr<const std::atomic<bool>> read;  // whether the program has read the value
  };

  // Adds a field. `help` says what it means, without a capital and a full stop; `choices` are all that a text may be.
  template <typename T>
  void add(std::string_view name, Setting<T>& setting, std::string help, std::vector<std::string> choices = {}) {
    setting.read_ = std::make_shared<std::atomic<bool>>(false);
    add(name, Target(&setting.value_), setting.read_, std::move(help), std::move(choices));
  }
  // A struct within.
  template <typename Inner>
  void nest(std::string_view name, Inner& inner) {
    group(name, [&](ConfigFields& fields) { inner.describe(fields); });
  }
  // Fields that share a name before theirs: describe(*this) adds them.
  template <typename Describe>
  void group(std::string_view name, const Describe& describe) {
    const std::string outer = prefix_;
    prefix_ += std::string(name) + ".";
    describe(*this);
    prefix_ = outer;
  }
  // A relation that has to hold in the end, of paths within this struct and numbers or texts: "train_steps >= 0",
  // "a.b == c.d"; with ==, !=, <, <=, > or >=.
  void restrict(std::string_view relation);

 private:
  friend class Config;
  struct Restriction {
    std::string prefix;
    std::string relation;
  };

  void add(std::string_view name, Target target, std::shared_ptr<const std::atomic<bool>> read, std::string help,
           std::vector<std::string> choices);

  std::string prefix_;
  std::vector<Field> fields_;
  std::vector<Restriction> restrictions_;
};

// The values of a configuration's fields: what set them, in the order of the calls, and whether they are read. Not
// thread-safe.
class Config {
 public:
  // What the fields hold now are the defaults.
  explicit Config(const std::function<void(ConfigFields&)>& describe);

  // A file of YAML or JSON: a map of maps. NotFound: no such file.
  void apply_file(const std::filesystem::path& file);
  // The same as text. `origin` is named in messages and in changes().
  void apply_yaml(std::string_view text, const std::string& origin);
  // YAML or JSON text (keys may be paths), "a.b=1,c=[1,2],d='x'", or the name of a file. (--params_override)
  void apply_override(const std::string& text, const std::string& origin = "--params_override");
  // Bindings in gin's format: "trainer.train_steps = 100", values as in Python, comments, include 'file.gin', macros
  // (STEPS = 100 and %STEPS). A key may leave out the beginning of its path where the rest, of two names or more, is
  // unambiguous. References to code (@name, import): Unimplemented.
  void apply_gin_file(const std::filesystem::path& file);
  // The same as text. `origin` is named in messages and in changes().
  void apply_gin(std::string_view text, const std::string& origin = "--gin_param");
  // One field, by its text.
  void set(const std::string& path, const std::string& value, const std::string& origin);
  // Back to its default.
  void reset(const std::string& path);

  // Checks the restrictions (InvalidArgument) and allows no more change (FailedPrecondition).
  void lock();

  // A field that has another value than its default.
  struct Change {
    std::string path;    // names from the outermost struct, with dots between
    std::string value;   // as YAML
    std::string origin;  // what set it, such as "--params_override"
  };
  // The fields that differ from their defaults.
  std::vector<Change> changes() const;
  // Those of them that somebody set and that nothing has read since.
  std::vector<Change> unread() const;
  // InvalidArgument: there are such, and `run` ("a run of mnist_mlp on drawn digits") does not do what they ask for.
  // Called when all is set up and nothing has begun.
  void require_read(const std::string& run) const;
  // Whether anything has read the field. NotFound: there is no such key.
  bool was_read(const std::string& path) const;
  // All of them, in their order.
  const std::vector<ConfigFields::Field>& fields() const { return fields_.fields_; }
  // Everything, as YAML that apply_file() reads.
  std::string to_yaml() const;
  // Every key with its type, default and meaning.
  std::string help() const;

 private:
  void apply(const ConfigValue& value, const std::string& prefix, const std::string& origin);
  void set_field(ConfigFields::Field& field, const ConfigValue& value, const std::string& origin) const;
  static void require_choice(const ConfigFields::Field& field, const std::string& before, const std::string& origin);
  const ConfigFields::Field* field_at(const std::string& path) const;
  ConfigFields::Field& find(const std::string& path, const std::string& origin);
  std::string why_unread(const ConfigFields::Field& field) const;
  // The full path of gin's shortened one.
  std::string full_path(const std::string& shortened, const std::string& origin) const;
  void check(const ConfigFields::Restriction& restriction) const;
  void apply_gin_text(std::string_view text, const std::string& origin, const std::filesystem::path& folder, int depth);

  ConfigFields fields_;
  std::map<std::string, ConfigValue> macros_;  // of gin
  bool locked_ = false;
};

}  // namespace cohort
