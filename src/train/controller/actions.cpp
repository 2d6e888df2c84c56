#include "cohort/actions.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/fail.h"
#include "base/log.h"
#include "strategy/core.h"

namespace cohort {

namespace {

constexpr const char* kBestStep = "best_ckpt_global_step";

bool better(double value, double than, Comparison comparison) {
  return comparison == Comparison::kHigher ? value > than : value < than;
}

double worst(Comparison comparison) {
  const double infinity = std::numeric_limits<double>::infinity();
  return comparison == Comparison::kHigher ? -infinity : infinity;
}

class BestSoFar {
 public:
  explicit BestSoFar(BestCheckpointOptions options) : options_(std::move(options)) {
    if (options_.metric.empty()) fail<InvalidArgument>("[actions] BestCheckpoint: metric is empty, wanted a name");
    if (options_.directory.empty())
      fail<InvalidArgument>("[actions] BestCheckpoint: directory is empty, wanted a path");
    if (!options_.save) fail<InvalidArgument>("[actions] BestCheckpoint: save is not set");
  }

  void operator()(const ActionInfo& info) {
    const StrategyCore& core = *info.controller.strategy().core();
    const double value = info.logs[options_.metric];
    bool improved = false;
    core.on_chief("the best checkpoint so far", [&] {
      read();
      improved = better(value, best_, options_.comparison);
    });
    if (!core.any_worker("whether this is the best checkpoint", improved)) return;
    const std::filesystem::path name = options_.directory / ("best_ckpt-" + std::to_string(info.step));
    core.on_chief("the folder of the best checkpoint",
                  [&] { std::filesystem::create_directories(options_.directory); });
    options_.save(name);
    core.on_chief("the best checkpoint", [&] {
      write(info);
      remove_others(name);
      best_ = value;
    });
  }

 private:
  std::filesystem::path file() const { return options_.directory / "info.json"; }

  // What an earlier run has left.
  void read() {
    if (read_) return;
    read_ = true;
    best_ = worst(options_.comparison);
    std::ifstream in(file());
    if (!in) return;
    const nlohmann::json info = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
    const auto found = info.is_object() ? info.find(options_.metric) : info.end();
    if (found != info.end() && found->is_number()) {
      best_ = found->get<double>();
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
  bool read_ = false;
  double best_ = 0.0;
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

class EarlyStopAction {
 public:
  explicit EarlyStopAction(EarlyStopOptions options) : options_(std::move(options)), best_(worst(options_.comparison)) {
    if (options_.metric.empty()) fail<InvalidArgument>("[actions] EarlyStop: metric is empty, wanted a name");
    if (options_.patience < 0) {
      fail<InvalidArgument>("[actions] EarlyStop: patience is ", options_.patience, ", wanted 0 or more");
    }
  }

  void operator()(const ActionInfo& info) {
    const double value = info.logs[options_.metric];
    const double delta = options_.comparison == Comparison::kHigher ? options_.min_delta : -options_.min_delta;
    if (better(value - delta, best_, options_.comparison)) {
      best_ = value;
      without_ = 0;
    } else if (++without_ > options_.patience) {
      log().info("[actions] EarlyStop: {} has not improved for {} evaluations", options_.metric, without_);
      info.controller.stop();
    }
  }

 private:
  EarlyStopOptions options_;
  double best_;
  int64_t without_ = 0;
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
  return make_action<EarlyStopAction>(options);
}

Action ConditionalAction(std::function<bool(const ActionInfo&)> condition, Action action) {
  return [condition = std::move(condition), action = std::move(action)](const ActionInfo& info) {
    if (condition(info)) action(info);
  };
}

}  // namespace cohort
