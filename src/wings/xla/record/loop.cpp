#include "wings/xla/record/loop.h"

#include <sstream>

#include "base/hash.h"

namespace cohort::record {

std::vector<int> inputs_of_loop(const Loop& loop) {
  std::vector<int> first;
  int next = 0;
  for (const Feed& feed : loop.feeds) {
    first.push_back(next);
    next += feed.kind == Feed::Kind::kFresh ? static_cast<int>(loop.most) : 1;
  }
  return first;
}

int count_inputs(const Loop& loop) {
  int count = 1;
  for (const Feed& feed : loop.feeds) count += feed.kind == Feed::Kind::kFresh ? static_cast<int>(loop.most) : 1;
  return count;
}

class LoopProgram {
 public:
  static std::shared_ptr<const Program> make(const Loop& loop) {
    auto program = std::make_shared<Program>();
    program->loop_ = std::make_shared<const Loop>(loop);
    add_inputs(loop, *program);
    Operation operation{"cohort::loop", {}, {}, torch::ScalarType::Undefined, ""};
    for (int i = 0; i < count_inputs(loop); ++i) operation.arguments.emplace_back(Place{-1, i});
    for (const Place& place : loop.body->outputs()) operation.outputs.push_back(loop.body->type_of(place));
    for (const int output : loop.kept) {
      const TensorType type = operation.outputs[static_cast<std::size_t>(output)];
      operation.outputs.insert(operation.outputs.end(), static_cast<std::size_t>(loop.most), type);
    }
    for (int i = 0; i < static_cast<int>(operation.outputs.size()); ++i) program->outputs_.push_back({0, i});
    program->operations_.push_back(std::move(operation));
    program->aliases_ = aliases(loop, program->outputs_.size());
    program->signature_ = signature(loop);
    program->fingerprint_ = hash_of(program->signature_);
    return program;
  }

 private:
  static void add_inputs(const Loop& loop, Program& program) {
    for (std::size_t i = 0; i < loop.feeds.size(); ++i) {
      const bool fresh = loop.feeds[i].kind == Feed::Kind::kFresh;
      const auto times = static_cast<std::size_t>(fresh ? loop.most : 1);
      program.inputs_.insert(program.inputs_.end(), times, loop.body->inputs()[i]);
    }
    program.inputs_.push_back({ProgramInput::Kind::kData, {torch::kLong, {}}, "runs"});
  }

  static std::vector<int> aliases(const Loop& loop, std::size_t outputs) {
    const std::vector<int> first = inputs_of_loop(loop);
    std::vector<int> aliases(outputs, -1);
    for (std::size_t o = 0; o < loop.body->aliases().size(); ++o) {
      const int input = loop.body->aliases()[o];
      if (input < 0) continue;
      const auto i = static_cast<std::size_t>(input);
      if (loop.feeds[i] == Feed{Feed::Kind::kCarried, static_cast<int>(o)}) aliases[o] = first[i];
    }
    return aliases;
  }

  static std::string signature(const Loop& loop) {
    std::ostringstream out;
    out << "loop " << loop.most << '\n';
    for (const Feed& feed : loop.feeds) out << "feed " << static_cast<int>(feed.kind) << ' ' << feed.output << '\n';
    for (const int output : loop.kept) out << "kept " << output << '\n';
    out << loop.body->signature();
    return out.str();
  }
};

std::shared_ptr<const Program> make_loop(const Loop& loop) {
  return LoopProgram::make(loop);
}

}  // namespace cohort::record
