#include "wings/xla/record/stablehlo/loop.h"

#include "wings/xla/record/loop.h"
#include "wings/xla/record/stablehlo/sharding.h"
#include "wings/xla/record/stablehlo/text.h"

namespace cohort::record::stablehlo {

namespace {

Operand operand(std::string name, const TensorType& type) {
  return {std::move(name), type.sizes, element_of(type.dtype)};
}

std::string names_of(const std::vector<Operand>& list) {
  std::string text;
  for (const Operand& each : list) text += (text.empty() ? "" : ", ") + each.name;
  return text;
}

std::string types_of(const std::vector<Operand>& list) {
  std::string text;
  for (const Operand& each : list) text += (text.empty() ? "" : ", ") + type_text(each);
  return text;
}

std::string declared(const std::vector<Operand>& list) {
  std::string text;
  for (const Operand& each : list) text += (text.empty() ? "" : ", ") + each.name + ": " + type_text(each);
  return text;
}

// Returns values of these types that are a function's arguments.
std::vector<Operand> arguments_like(const std::vector<Operand>& list) {
  std::vector<Operand> arguments = list;
  for (std::size_t i = 0; i < list.size(); ++i) arguments[i].name = "%arg" + std::to_string(i);
  return arguments;
}

Dims stacked(int64_t count, const Dims& sizes) {
  Dims all{count};
  all.insert(all.end(), sizes.begin(), sizes.end());
  return all;
}

std::vector<Operand> call(Text& text, const std::string& function, const std::vector<Operand>& arguments,
                          const std::vector<Operand>& results) {
  return text.emit_several("func.call @" + function + "(" + names_of(arguments) + ") : (" + types_of(arguments) +
                               ") -> (" + types_of(results) + ")",
                           results);
}

std::vector<Operand> barrier(Text& text, const std::vector<Operand>& values) {
  return text.emit_several("stablehlo.optimization_barrier " + names_of(values) + " : " + types_of(values), values);
}

// What the runs hand on: the number of the next run and of all, the inputs of the body (stacked if they are fresh), the
// outputs of the body that are not carried, and the kept ones, stacked.
class LoopText {
 public:
  LoopText(const Program& program, bool divided) : program_(program), loop_(*program.loop()), divided_(divided) {
    for (const Place& place : loop_.body->outputs()) {
      outputs_.push_back(operand("", loop_.body->type_of(place)));
      carried_into_.push_back(-1);
    }
    for (std::size_t i = loop_.feeds.size(); i-- > 0;) {
      if (loop_.feeds[i].kind == Feed::Kind::kCarried) carried_into_[at(loop_.feeds[i].output)] = static_cast<int>(i);
    }
  }

  std::string text() {
    const std::string main = main_function();
    return iteration() + main;
  }

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  std::string main_function() {
    Text text("DEFAULT");  // there is no product in it
    text.set_location("loop");
    std::vector<Operand> arguments;
    for (std::size_t i = 0; i < program_.inputs().size(); ++i) {
      arguments.push_back(operand("%arg" + std::to_string(i), program_.inputs()[i].type));
    }
    state_ = {text.integer(0, {}, "i64"), arguments.back()};
    const std::vector<int> first = inputs_of_loop(loop_);
    for (std::size_t i = 0; i < loop_.feeds.size(); ++i) {
      const auto own = arguments.begin() + first[i];
      const bool fresh = loop_.feeds[i].kind == Feed::Kind::kFresh;
      state_.push_back(fresh ? stack(text, {own, own + static_cast<std::ptrdiff_t>(loop_.most)}) : *own);
    }
    for (std::size_t o = 0; o < outputs_.size(); ++o) {
      if (carried_into_[o] < 0) state_.push_back(text.constant(0, outputs_[o].sizes, outputs_[o].element));
    }
    for (const int o : loop_.kept) {
      state_.push_back(text.constant(0, stacked(loop_.most, outputs_[at(o)].sizes), outputs_[at(o)].element));
    }
    const std::vector<Operand> last = repeat(text);
    const std::vector<Operand> results = results_of(text, last);
    return "  func.func public @main(" + signature(arguments) + ") -> (" + result_types(results) + ") {\n" +
           text.body() + "    return" + (results.empty() ? "" : " " + names_of(results) + " : " + types_of(results)) +
           "\n  }\n";
  }

  Operand stack(Text& text, const std::vector<Operand>& list) const {
    std::vector<Operand> rows;
    for (const Operand& each : list) rows.push_back(text.reshape(each, stacked(1, each.sizes)));
    return text.concatenate(rows, 0);
  }

  std::vector<Operand> repeat(Text& text) const {
    std::vector<Operand> own = state_;
    std::string begins;
    for (std::size_t i = 0; i < own.size(); ++i) {
      own[i].name = "%own" + std::to_string(i);
      begins += (i == 0 ? "" : ", ") + own[i].name + " = " + state_[i].name;
    }
    const std::string types = types_of(own);
    const std::string several = std::to_string(own.size());
    return text.emit_several(
        "stablehlo.while(" + begins + ") : " + types + "\n     cond {\n      %more = stablehlo.compare LT, " +
            own[0].name + ", " + own[1].name +
            " : (tensor<i64>, tensor<i64>) -> tensor<i1>\n      stablehlo.return %more : tensor<i1>\n    } do {\n" +
            "      %next:" + several + " = func.call @iteration(" + names_of(own) + ") : (" + types + ") -> (" + types +
            ")\n      stablehlo.return " + next_names(own.size()) + " : " + types + "\n    }",
        own);
  }

  static std::string next_names(std::size_t count) {
    std::string names;
    for (std::size_t i = 0; i < count; ++i) names += (i == 0 ? "%next#" : ", %next#") + std::to_string(i);
    return names;
  }

  // Returns the program's results from what the last run has handed on.
  std::vector<Operand> results_of(Text& text, const std::vector<Operand>& last) const {
    std::vector<Operand> results;
    std::size_t next = 2 + loop_.feeds.size();
    for (std::size_t o = 0; o < outputs_.size(); ++o) {
      results.push_back(carried_into_[o] >= 0 ? last[2 + at(carried_into_[o])] : last[next++]);
    }
    for (const int o : loop_.kept) {
      const Operand& rows = last[next++];
      for (int64_t run = 0; run < loop_.most; ++run) {
        Dims begin(rows.sizes.size(), 0);
        Dims end = rows.sizes;
        begin[0] = run;
        end[0] = run + 1;
        results.push_back(text.reshape(text.slice(rows, begin, end, Dims(begin.size(), 1)), outputs_[at(o)].sizes));
      }
    }
    return results;
  }

  std::string iteration() const {
    Text text("DEFAULT");  // there is no product in it
    text.set_location("loop");
    const std::vector<Operand> state = arguments_like(state_);
    std::vector<Operand> inputs;
    for (std::size_t i = 0; i < loop_.feeds.size(); ++i) {
      const bool fresh = loop_.feeds[i].kind == Feed::Kind::kFresh;
      inputs.push_back(fresh ? row_of(text, state[2 + i], state[0]) : state[2 + i]);
    }
    if (!inputs.empty()) inputs = barrier(text, inputs);
    std::vector<Operand> outputs = outputs_;
    if (!outputs.empty()) outputs = barrier(text, call(text, "step", inputs, outputs_));
    std::vector<Operand> next{text.binary("add", state[0], text.integer(1, {}, "i64")), state[1]};
    for (std::size_t i = 0; i < loop_.feeds.size(); ++i) {
      const Feed& feed = loop_.feeds[i];
      next.push_back(feed.kind == Feed::Kind::kCarried ? outputs[at(feed.output)] : state[2 + i]);
    }
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      if (carried_into_[o] < 0) next.push_back(outputs[o]);
    }
    for (const int o : loop_.kept) next.push_back(with_row(text, state[next.size()], outputs[at(o)], state[0]));
    return "  func.func private @iteration(" + declared(state) + ") -> (" + types_of(state) + ") {\n" + text.body() +
           "    return " + names_of(next) + " : " + types_of(next) + "\n  }\n";
  }

  // Returns the indices of a row as text: its number, and zeros.
  static std::string indices(Text& text, const Operand& run, int64_t rank) {
    const Operand zero = text.integer(0, {}, "i64");
    std::string names = run.name;
    for (int64_t d = 1; d < rank; ++d) names += ", " + zero.name;
    return names;
  }
  static std::string index_types(int64_t rank) {
    std::string types = "tensor<i64>";
    for (int64_t d = 1; d < rank; ++d) types += ", tensor<i64>";
    return types;
  }

  static Operand row_of(Text& text, const Operand& rows, const Operand& run) {
    Dims sizes = rows.sizes;
    sizes[0] = 1;
    const Operand row = text.emit("stablehlo.dynamic_slice " + rows.name + ", " + indices(text, run, rows.rank()) +
                                      ", sizes = " + list_text(sizes) + " : (" + type_text(rows) + ", " +
                                      index_types(rows.rank()) + ") -> " + type_text(sizes, rows.element),
                                  sizes, rows.element);
    return text.reshape(row, Dims(rows.sizes.begin() + 1, rows.sizes.end()));
  }

  static Operand with_row(Text& text, const Operand& rows, const Operand& value, const Operand& run) {
    const Operand row = text.reshape(value, stacked(1, value.sizes));
    return text.emit("stablehlo.dynamic_update_slice " + rows.name + ", " + row.name + ", " +
                         indices(text, run, rows.rank()) + " : (" + type_text(rows) + ", " + type_text(row) + ", " +
                         index_types(rows.rank()) + ") -> " + type_text(rows),
                     rows.sizes, rows.element);
  }

  std::string signature(const std::vector<Operand>& arguments) const {
    std::string text;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      text += (i == 0 ? "" : ", ") + arguments[i].name + ": " + type_text(arguments[i]);
      std::string attributes;
      for (std::size_t o = 0; o < program_.aliases().size(); ++o) {
        if (program_.aliases()[o] == static_cast<int>(i))
          attributes = "tf.aliasing_output = " + std::to_string(o) + " : i32";
      }
      if (divided_) attributes += (attributes.empty() ? "" : ", ") + whole_text(arguments[i].rank());
      if (!attributes.empty()) text += " {" + attributes + "}";
    }
    return text;
  }

  // Returns the types of the results. What leaves a program lies whole on every core, as what enters it.
  std::string result_types(const std::vector<Operand>& results) const {
    if (!divided_) return types_of(results);
    std::string text;
    for (const Operand& each : results) {
      text += (text.empty() ? "" : ", ") + type_text(each) + " {" + whole_text(each.rank()) + "}";
    }
    return text;
  }

  const Program& program_;
  const Loop& loop_;
  const bool divided_;
  std::vector<Operand> outputs_;   // of the body; only their types
  std::vector<int> carried_into_;  // the body's first input that an output becomes, or -1
  std::vector<Operand> state_;     // what the first run begins with
};

}  // namespace

std::string loop_text(const Program& program, bool divided) {
  return LoopText(program, divided).text();
}

}  // namespace cohort::record::stablehlo
