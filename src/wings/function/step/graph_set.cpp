#include "wings/function/step/graph_set.h"

#include <utility>

namespace cohort {

GraphSet::GraphSet(StrategyCore& core, std::shared_ptr<SumsBeside> sums, std::shared_ptr<GraphAgreement> agreement,
                   DevicePlaces places, std::string what)
    : core_(core),
      sums_(std::move(sums)),
      agreement_(std::move(agreement)),
      places_(std::move(places)),
      what_(std::move(what)),
      own_(places_.of.size()) {}

std::shared_ptr<const GraphCompany> GraphSet::company_of(int local_id, std::vector<torch::Tensor> used) {
  own_[static_cast<std::size_t>(local_id)].used = std::move(used);
  const std::shared_ptr<GraphSet> set = shared_from_this();
  // Once the graph of one replica is gone those of the others are of no use.
  const auto end = [set](const GraphCompany* company) {
    set->is_whole_ = false;
    std::default_delete<const GraphCompany>()(company);
  };
  return {new GraphCompany{
              .agree = [set, local_id] { return set->agreement_->all_run(local_id, set.get()); },
              .launch = [set, local_id](const std::function<void()>& replay) { set->launch(local_id, replay); },
              .is_whole = [set] { return set->is_whole_.load(); }},
          end};
}

// The points are new ones each time, because the watch may still ask for those of the launch before. Whoever fails has
// not come to its graph.
void GraphSet::launch(int local_id, const std::function<void()>& replay) {
  sums_->require_well();
  const auto me = static_cast<std::size_t>(local_id);
  Own& mine = own_[me];
  mine.begun = std::make_shared<PointToCome>();
  mine.ended = std::make_shared<PointToCome>();
  const auto give = [&] {
    mine.begun->set(sums_->mark(local_id));
    try {
      replay();
    } catch (...) {
      mine.begun->set(nullptr);
      throw;
    }
    mine.ended->set(sums_->mark(local_id));
  };
  Rendezvous& meeting = core_.rendezvous();
  meeting.arrive(local_id, {.what = "the launch of their graphs"}, nullptr);
  meeting.finish(local_id, [&] {
    if (me == 0) watch();
    places_.are_shared() ? launch_in_order(me, give) : give();
  });
}

void GraphSet::launch_in_order(std::size_t me, const std::function<void()>& give) {
  Rendezvous& meeting = core_.rendezvous();
  const auto local_id = static_cast<int>(me);
  const std::vector<std::size_t> here = places_.ranks(places_.of[me]);
  const torch::Device device = places_.devices[places_.of[me]];
  const bool is_last = me == here.back();
  if (!is_last) give();
  meeting.sync(local_id);
  if (is_last) {
    for (std::size_t i = 0; i + 1 < here.size(); ++i) own_[here[i]].ended->wait(device);
    give();
  }
  meeting.sync(local_id);
  if (!is_last) own_[here.back()].ended->wait(device);
}

void GraphSet::watch() const {
  std::vector<SumsBeside::Passage> graphs;
  for (std::size_t d = 0; d < places_.devices.size(); ++d) {
    const Own& last = own_[places_.ranks(d).back()];
    graphs.push_back({.begun = last.begun, .ended = last.ended});
  }
  sums_->watch(what_, graphs);
}

}  // namespace cohort
