// Configurations: typed structs whose fields have names, defaults and meanings, and the layers that set them. A field
// is described once, by its struct: files, overrides, flags, messages, --help and the tables of the documentation take
// its name, type, default, meaning and bounds from there.
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
// Keys are paths ("trainer.train_steps"). A key that does not exist is NotFound and suggests the nearest; a value of
// another type is InvalidArgument; both say where it came from. A setting has its effect or is an error: a field knows
// whether it was read (cohort/models/setting.h), and require_read() refuses fields that were set without being read.
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

// A value of a file or a flag, before a field gives it its type.
struct ConfigValue {
  // The sort of a value.
  enum class Kind { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;                                        // tells which of the following members has the value
  std::string text = {};                                          // the value of a scalar
  std::vector<ConfigValue> items = {};                            // the items of a list
  std::vector<std::pair<std::string, ConfigValue>> members = {};  // the members of a map, in the order of the text
  int64_t line = 0;                                               // the line of its text, from 1; 0: not known
};

// Collects the descriptions of fields; describe() of a struct adds them. The structs have to outlive it.
class ConfigFields {
 public:
  // The variable that holds a field's value.
  using Target = std::variant<bool*, int64_t*, double*, std::string*, std::vector<int64_t>*, std::vector<double>*,
                              std::vector<std::string>*>;
  // The description of a field.
  struct Field {
    std::string path;                                    // names from the outermost struct, with dots between
    Target target;                                       // the variable that has the value
    std::string help;                                    // the meaning of the field
    std::vector<std::string> choices = {};               // the texts that are allowed; empty: any
    std::string names = {};                              // names of a table, for help; their page describes them
    std::string default_value = {};                      // the default as YAML
    std::string flag = {};                               // a flag of `cohort train` that sets it; empty: none
    std::vector<std::string> bounds = {};                // its relations that restrict() has, such as ">= 0"
    std::string origin = {};                             // the origin of the value; empty: it has its default
    std::shared_ptr<const std::atomic<bool>> read = {};  // true if the program has read the value
  };

  // Adds a field and returns its description. `help` is its meaning in one line, without a capital and a full stop;
  // `choices` are the texts that are allowed. The reference holds until another field is added.
  template <typename T>
  Field& add(std::string_view name, Setting<T>& setting, std::string help, std::vector<std::string> choices = {}) {
    setting.read_ = std::make_shared<std::atomic<bool>>(false);
    return add(name, Target(&setting.value_), setting.read_, std::move(help), std::move(choices));
  }
  // Adds the fields of an inner struct.
  template <typename Inner>
  void nest(std::string_view name, Inner& inner) {
    group(name, [&](ConfigFields& fields) { inner.describe(fields); });
  }
  // Adds the fields that describe(*this) adds, with a name before theirs.
  template <typename Describe>
  void group(std::string_view name, const Describe& describe) {
    const std::string outer = prefix_;
    prefix_ += std::string(name) + ".";
    describe(*this);
    prefix_ = outer;
  }
  // Adds a relation that Config::lock() checks, between a path within this struct and another one, a number or a text:
  // "train_steps >= 0", "a.b == c.d". The operators are ==, !=, <, <=, > and >=.
  void restrict(std::string_view relation);

 private:
  friend class Config;
  struct Restriction {
    std::string prefix;
    std::string relation;
  };

  Field& add(std::string_view name, Target target, std::shared_ptr<const std::atomic<bool>> read, std::string help,
             std::vector<std::string> choices);

  std::string prefix_;
  std::vector<Field> fields_;
  std::vector<Restriction> restrictions_;
};

// The values of a configuration's fields: what set them, in the order of the calls, and whether they are read. Not
// thread-safe.
class Config {
 public:
  // Takes the present values of the fields as their defaults.
  explicit Config(const std::function<void(ConfigFields&)>& describe);

  // Sets what a file of YAML or JSON, a map of maps, says. NotFound: there is no such file.
  void apply_file(const std::filesystem::path& file);
  // Sets what the text of such a file says. `origin` is named in messages and in changes().
  void apply_yaml(std::string_view text, const std::string& origin);
  // Sets what YAML or JSON text (whose keys may be paths), assignments as in "a.b=1,c=[1,2],d='x'", or a file of that
  // name says. (--params_override)
  void apply_override(const std::string& text, const std::string& origin = "--params_override");
  // Sets what bindings in gin's format say: "trainer.train_steps = 100", values as in Python, comments,
  // include 'file.gin', macros (STEPS = 100 and %STEPS). A key may leave out the beginning of its path if the rest, of
  // two names or more, is unambiguous. InvalidArgument: references to code (@name, import). Unimplemented: builds
  // without the wing gin.
  void apply_gin_file(const std::filesystem::path& file);
  // Sets what the text of such a file says. `origin` is named in messages and in changes().
  void apply_gin(std::string_view text, const std::string& origin = "--gin_param");
  // Sets one field to the value of a text.
  void set(const std::string& path, const std::string& value, const std::string& origin);
  // Sets one field back to its default.
  void reset(const std::string& path);

  // Checks the restrictions (InvalidArgument) and allows no more changes (FailedPrecondition).
  void lock();

  // A field that has another value than its default.
  struct Change {
    std::string path;    // names from the outermost struct, with dots between
    std::string value;   // the value as YAML
    std::string origin;  // the origin of the value, such as "--params_override"
  };
  // Returns the fields that differ from their defaults.
  std::vector<Change> changes() const;
  // Returns those of them that somebody has set and nothing has read since.
  std::vector<Change> unread() const;
  // Fails with InvalidArgument if there are such: `run` ("a run of mnist_mlp on drawn digits") does not do what they
  // ask for. Call it when everything is set up and nothing has begun.
  void require_read(const std::string& run) const;
  // Returns whether anything has read the field. NotFound: there is no such key.
  bool was_read(const std::string& path) const;
  // Returns the descriptions of all fields, in their order.
  const std::vector<ConfigFields::Field>& fields() const { return fields_.fields_; }
  // Returns all values as YAML that apply_file() reads.
  std::string to_yaml() const;
  // Returns a text with the type, default, meaning and bounds of every key.
  std::string help() const;

 private:
  void apply(const ConfigValue& value, const std::string& prefix, const std::string& origin);
  void set_field(ConfigFields::Field& field, const ConfigValue& value, const std::string& origin) const;
  static void require_choice(const ConfigFields::Field& field, const std::string& before, const std::string& origin);
  const ConfigFields::Field* field_at(const std::string& path) const;
  ConfigFields::Field& find(const std::string& path, const std::string& origin);
  std::string why_unread(const ConfigFields::Field& field) const;
  // Returns the full path for a shortened one of gin.
  std::string full_path(const std::string& shortened, const std::string& origin) const;
  void check(const ConfigFields::Restriction& restriction) const;
  void apply_gin_text(std::string_view text, const std::string& origin, const std::filesystem::path& folder);

  ConfigFields fields_;
  std::map<std::string, ConfigValue> macros_;  // gin's
  bool locked_ = false;
};

}  // namespace cohort
