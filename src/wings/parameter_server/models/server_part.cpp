#include "wings/parameter_server/models/server_part.h"

#include <utility>

#include "base/fail.h"
#include "cohort/cluster/parameter_server_strategy.h"
#include "strategy/combinations.h"

namespace cohort {

namespace {

// The chief makes the run, and the others serve it.
class PartAmongServers final : public Part {
 public:
  explicit PartAmongServers(ParameterServerStrategy strategy) : strategy_(std::move(strategy)) {}

  bool in_charge() const override { return strategy_.is_coordinator(); }
  // An evaluation has nothing to serve.
  bool serves(bool trains) const override { return trains ? strategy_.serve() : !strategy_.is_coordinator(); }
  void require_stages(const std::vector<int64_t>& stages) const override {
    if (stages.empty()) return;
    require_pair("[train]",
                 {.feature = kTrainingStages, .said = c10::str("the training changes after step ", stages.front())},
                 {.feature = kServers, .said = "the strategy is parameter_server"});
  }

 private:
  ParameterServerStrategy strategy_;
};

std::unique_ptr<Part> make_part(const Strategy& strategy) {
  auto servers = ParameterServerStrategy::of(strategy);
  return servers ? std::make_unique<PartAmongServers>(*std::move(servers)) : nullptr;
}

}  // namespace

PartMaker part_among_servers() {
  return {.make = make_part};
}

}  // namespace cohort
