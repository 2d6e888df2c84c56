// BestCheckpoint: saves the best model of a Controller's training. It finds the best number so far in its own folder.
#include <nlohmann/json.hpp>

#include "base/access.h"
#include "base/atomic_file.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/regular_file.h"
#include "cohort/train/actions.h"
#include "cohort/train/controller.h"
#include "strategy/core.h"
#include "train/loop/improvement.h"

namespace cohort {

namespace {

constexpr const char* kBestStep = "best_ckpt_global_step";

class BestSoFar {
 public:
  explicit BestSoFar(BestCheckpointOptions options) : options_(std::move(options)), best_(options_.comparison) {
    if (options_.metric.empty()) fail<InvalidArgument>("[actions] BestCheckpoint: metric is empty, wanted a name");
    if (options_.directory.empty())
      fail<InvalidArgument>("[actions] BestCheckpoint: directory is empty, wanted a path");
    if (!options_.save) fail<InvalidArgument>("[actions] BestCheckpoint: save is not set");
  }

  void operator()(const ActionInfo& info) {
    const StrategyCore& core = *Access::core(info.controller.strategy());
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

  // Reads what an earlier run has left, once.
  void read() {
    if (read_) return;
    read_ = true;
    const auto text = read_regular_file(file(), "actions");
    if (!text) return;
    const nlohmann::json info = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
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

}  // namespace

Action BestCheckpoint(const BestCheckpointOptions& options) {
  return [best = std::make_shared<BestSoFar>(options)](const ActionInfo& info) { (*best)(info); };
}

}  // namespace cohort
