#include "wings/xla/record/steps.h"

#include <algorithm>

#include "base/fail.h"

namespace cohort::record {

const std::shared_ptr<DeviceData>& Promised::value() const {
  if (!error_.empty()) {
    fail<FailedPrecondition>("[record] a value of a step is wanted whose launch, with others in a loop, has failed: ",
                             error_);
  }
  if (value_ == nullptr) fail<Internal>("[record] a value of a step is wanted before its launch");
  return value_;
}

void Promised::fill(std::shared_ptr<DeviceData> value) {
  value_ = std::move(value);
  steps_.reset();
}

void Promised::fail_with(std::string error) {
  error_ = std::move(error);
  steps_.reset();
}

std::optional<Steps::Carried> Steps::carried(const Values& inputs, std::size_t replica) const {
  Carried outputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    outputs.push_back(-1);
    const auto* promised = dynamic_cast<const Promised*>(inputs[i].get());
    if (promised == nullptr || promised->steps().get() != this) continue;
    if (promised->step() != size_ - 1 || promised->replica() != replica) return std::nullopt;
    const TensorType made = program_->type_of(program_->outputs()[static_cast<std::size_t>(promised->output())]);
    if (!(made == program_->inputs()[i].type)) return std::nullopt;
    outputs.back() = promised->output();
  }
  return outputs;
}

std::optional<Steps::Carried> Steps::carried(const std::vector<Values>& inputs) const {
  std::optional<Carried> first = carried(inputs.front(), 0);
  for (std::size_t r = 1; first && r < inputs.size(); ++r) {
    if (carried(inputs[r], r) != first) return std::nullopt;
  }
  return first;
}

bool Steps::takes(const std::shared_ptr<const Program>& program, const std::vector<Values>& inputs,
                  const std::vector<int>& devices) const {
  if (program != program_ || devices != devices_) return false;
  const std::optional<Carried> own = carried(inputs);
  if (!own) return false;
  return size_ == 0 || size_ == 1 || *own == carried_;
}

std::vector<Steps::Values> Steps::add(std::vector<Values> inputs) {
  if (size_ > 0) {
    carried_ = *carried(inputs);
    // What the step before makes is alive only for those outside who hold it.
    for (Values& own : inputs) {
      for (std::size_t i = 0; i < own.size(); ++i) {
        if (carried_[i] >= 0) own[i].reset();
      }
    }
  }
  inputs_.push_back(std::move(inputs));
  std::vector<Values> outputs(devices_.size());
  auto& promised = promised_.emplace_back(devices_.size());
  for (std::size_t r = 0; r < devices_.size(); ++r) {
    for (int o = 0; o < static_cast<int>(program_->outputs().size()); ++o) {
      const auto value = std::make_shared<Promised>(shared_from_this(), size_, r, o);
      promised[r].push_back(value);
      outputs[r].push_back(value);
    }
  }
  ++size_;
  return outputs;
}

std::vector<Steps::Values> Steps::first_inputs() const {
  return inputs_.front();
}

bool Steps::is_fresh(std::size_t input) const {
  if (size_ > 1 && carried_[input] >= 0) return false;
  // The numbers of the steps may be the same for a while: that is no other loop.
  if (program_->inputs()[input].kind == ProgramInput::Kind::kScalars) return true;
  return std::any_of(inputs_.begin(), inputs_.end(), [&](const std::vector<Values>& step) {
    for (std::size_t r = 0; r < step.size(); ++r) {
      if (step[r][input] != inputs_.front()[r][input]) return true;
    }
    return false;
  });
}

// Returns whether the next step takes the output's memory: nobody else has the value then.
bool Steps::is_given_away(std::size_t output) const {
  const auto& aliases = program_->aliases();
  return std::any_of(aliases.begin(), aliases.end(), [&](int input) {
    return input >= 0 && carried_[static_cast<std::size_t>(input)] == static_cast<int>(output);
  });
}

int64_t Steps::fresh_bytes(const std::vector<Values>& inputs) const {
  const Carried from = size_ == 0 ? Carried(program_->inputs().size(), -1) : *carried(inputs);
  int64_t bytes = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const ProgramInput& input = program_->inputs()[i];
    const bool numbers = input.kind == ProgramInput::Kind::kScalars;
    const bool differs = size_ > 0 && inputs.front()[i] != inputs_.front().front()[i];
    if (from[i] < 0 && (numbers || differs)) {
      bytes += input.type.numel() * static_cast<int64_t>(c10::elementSize(input.type.dtype));
    }
  }
  return bytes;
}

Loop Steps::loop(int64_t most) const {
  Loop loop{.body = program_, .most = most, .feeds = {}, .kept = {}};
  for (std::size_t i = 0; i < program_->inputs().size(); ++i) {
    const int output = size_ > 1 ? carried_[i] : -1;
    if (output >= 0) {
      loop.feeds.push_back({Feed::Kind::kCarried, output});
    } else {
      loop.feeds.push_back({is_fresh(i) ? Feed::Kind::kFresh : Feed::Kind::kConstant, -1});
    }
  }
  for (std::size_t o = 0; o < program_->outputs().size(); ++o) {
    bool wanted = false;
    for (std::size_t s = 0; s + 1 < promised_.size() && !is_given_away(o); ++s) {
      for (const auto& replica : promised_[s]) wanted = wanted || !replica[o].expired();
    }
    if (wanted) loop.kept.push_back(static_cast<int>(o));
  }
  return loop;
}

std::vector<Steps::Values> Steps::inputs_of(const Loop& loop) const {
  std::vector<Values> all(devices_.size());
  for (std::size_t r = 0; r < devices_.size(); ++r) {
    for (std::size_t i = 0; i < loop.feeds.size(); ++i) {
      const bool fresh = loop.feeds[i].kind == Feed::Kind::kFresh;
      for (int64_t run = 0; run < (fresh ? loop.most : 1); ++run) {
        all[r].push_back(inputs_[static_cast<std::size_t>(std::min(run, size_ - 1))][r][i]);
      }
    }
  }
  return all;
}

void Steps::finish(const Loop* loop, const std::vector<Values>& results) {
  const auto give = [](const std::weak_ptr<Promised>& to, const std::shared_ptr<DeviceData>& value) {
    if (const auto promised = to.lock()) promised->fill(value);
  };
  const std::size_t outputs = program_->outputs().size();
  for (std::size_t r = 0; r < devices_.size(); ++r) {
    for (std::size_t o = 0; o < outputs; ++o) give(promised_.back()[r][o], results.at(r).at(o));
    for (std::size_t k = 0; loop != nullptr && k < loop->kept.size(); ++k) {
      for (std::size_t s = 0; s + 1 < promised_.size(); ++s) {
        const std::size_t row = outputs + k * static_cast<std::size_t>(loop->most) + s;
        give(promised_[s][r][static_cast<std::size_t>(loop->kept[k])], results[r].at(row));
      }
    }
  }
}

void Steps::fail_with(const std::string& error) {
  for (const auto& step : promised_) {
    for (const auto& replica : step) {
      for (const auto& each : replica) {
        if (const auto promised = each.lock()) promised->fail_with(error);
      }
    }
  }
}

}  // namespace cohort::record
