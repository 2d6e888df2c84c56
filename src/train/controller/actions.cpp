#include "cohort/actions.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/fail.h"
#include "base/log.h"
#include "strategy/core.h"
#include "train/loop/improvement.h"

namespace cohort {

namespace {

constexpr const char* kBestStep = "best_ckpt_global_step";

// Nothing to begin with: the first number is better where it is finite.
Best best_by(Comparison comparison, double min_delta) {
  const bool up = comparison == Comparison::kHigher;
  const double infinity = std::numeric_limits<double>::infinity();
  return Best(up, min_delta, up ? -infinity : infinity);
}

class BestSoFar {
 public:
  explicit BestSoFar(BestCheckpointOptions options)
      : options_(std::move(options)), best_(best_by(options_.comparison, 0.0)) {
    if (options_.metric.empty()) fail<InvalidArgument>("[actions] BestCheckpoint: metric is empty, wanted a name");
    if (options_.directory.empty())
      fail<InvalidArgument>("[actions] BestCheckpoint: directory is empty, wanted a path");
    if (!options_.save) fail<InvalidArgument>("[actions] BestCheckpoint: save is not set");
  }

  void operator()(const ActionInfo& info) {
    const StrategyCore& core = *info.controller.strategy().core();
    const double value = info.logs[options_.metric];
    core.on_chief("the best checkpoint so far", [&] { read(); });
    save_if_best(core, best_, value, [&] {
      const std::filesystem::path name = options_.directory / ("best_ckpt-" + std::to_string(info.step));
      core.on_chief("the folder of the best checkpoint",
                    [&] { std::filesystem::create_directories(options_.directory); });
      options_.save(name);
      core.on_chief("the best checkpoint", [&] {
        write(info);
        remove_others(name);
      });
    });
  }

 private:
  std::filesystem::path file() const { return options_.directory / "info.json"; }

  // What an earlier run has left.
  void read() {
    if (read_) return;
    read_ = true;
    std::ifstream in(file());
    if (!in) return;
    const nlohmann::json info = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
    const auto found = info.is_object() ? info.find(options_.metric) : info.end();
    if (found != info.end() && found->is_number()) {
      best_.set(found->get<double>());
    } else {
      log().warn("[actions] BestCheckpoint: {} has no number \"{}\" and counts for nothing", file().string(),
                 options_.metric);
    }
  }

  void write(const ActionInfo& info) const {
    nlohmann::ordered_json json;
    for (const auto& [name, value] : info.logs) json[name] = value;
    json[kBestStep] = info.step;
    AtomicFile whole(file());
    whole.write(json.dump(2) + "\n");
    whole.commit();
  }

  void remove_others(const std::filesystem::path& kept) const {
    for (const auto& entry : std::filesystem::directory_iterator(options_.directory)) {
      const bool best = entry.path().filename().string().starts_with("best_ckpt-");
      if (best && entry.path() != kept && entry.path().stem() != kept.filename())
        std::filesystem::remove_all(entry.path());
    }
  }

  BestCheckpointOptions options_;
  Best best_;
  bool read_ = false;
};

class RecoveryAction {
 public:
  explicit RecoveryAction(const RecoveryOptions& options) : options_(options) {}

  void operator()(const ActionInfo& info) {
    double loss = info.logs["loss"];
    if (std::isnan(loss)) loss = std::abs(loss);  // without a sign, which would be said
    const bool large = info.step >= options_.begin_steps && loss > options_.loss_upper_bound;
    if (options_.max_trials < 0 || (!std::isnan(loss) && !large)) return;
    if (++trials_ > options_.max_trials) {
      fail<FailedPrecondition>("[actions] Recovery: the loss is ", loss, " after step ", info.step, ", wanted at most ",
                               options_.loss_upper_bound, "; ", options_.max_trials, " recoveries were allowed");
    }
    if (!info.controller.restore_checkpoint(/*keep_input=*/true)) {
      fail<FailedPrecondition>("[actions] Recovery: the loss is ", loss, " after step ", info.step,
                               ", and there is no checkpoint to go back to");
    }
    log().warn("[actions] Recovery: the loss was {} after step {}; the latest checkpoint is restored, {} of {} times",
               loss, info.step, trials_, options_.max_trials);
  }

 private:
  RecoveryOptions options_;
  int64_t trials_ = 0;
};

class EarlyStopAction final : public Listener {
 public:
  // The first evaluation beyond the patience stops the training; of Keras' rule the last one within it does.
  explicit EarlyStopAction(EarlyStopOptions options)
      : options_(std::move(options)), rule_(best_by(options_.comparison, options_.min_delta), options_.patience + 1) {
    if (options_.metric.empty()) fail<InvalidArgument>("[actions] EarlyStop: metric is empty, wanted a name");
    if (options_.patience < 0) {
      fail<InvalidArgument>("[actions] EarlyStop: patience is ", options_.patience, ", wanted 0 or more");
    }
  }

  void operator()(const ActionInfo& info) {
    if (rule_.improves(info.logs[options_.metric]) || !rule_.exhausted()) return;
    log().info("[actions] EarlyStop: {} has not improved for {} evaluations", options_.metric, rule_.waited());
    info.controller.stop();
  }

  std::string state_name() const override { return "early_stop"; }
  CallbackState state() const override { return rule_.state(); }
  void load_state(const CallbackState& state) override { rule_.load_state(state); }

 private:
  EarlyStopOptions options_;
  EarlyStopRule rule_;
};

// std::function copies what it holds; all copies are the one action.
template <typename Kind, typename Options>
Action make_action(const Options& options) {
  return [kind = std::make_shared<Kind>(options)](const ActionInfo& info) { (*kind)(info); };
}

}  // namespace

Action BestCheckpoint(const BestCheckpointOptions& options) {
  return make_action<BestSoFar>(options);
}

Action Recovery(const RecoveryOptions& options) {
  return make_action<RecoveryAction>(options);
}

Action EarlyStop(const EarlyStopOptions& options) {
  const auto action = std::make_shared<EarlyStopAction>(options);
  return {[action](const ActionInfo& info) { (*action)(info); }, action};
}

Action ConditionalAction(std::function<bool(const ActionInfo&)> condition, Action action) {
  const std::shared_ptr<Listener> listener = action.listener();
  const auto call = [condition = std::move(condition), action = std::move(action)](const ActionInfo& info) {
    if (condition(info)) action(info);
  };
  return {call, listener};
}

}  // namespace cohort
