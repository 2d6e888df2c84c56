// cohort launch --elastic and --join: a run that goes on with the workers that are there.
#pragma once

#include <functional>
#include <string>

#include "rpc/security.h"
#include "wings/launch/group.h"
#include "wings/launch/plan.h"

namespace cohort::cli {

struct ElasticOptions {
  std::string bounds;         // "MIN:MAX" workers; empty: this launcher leads none
  std::string join;           // the leader's "host:port"; empty: this launcher joins none
  double join_timeout = 600;  // seconds to wait for MIN workers, or for the leader

  bool active() const { return !bounds.empty() || !join.empty(); }
};

// Returns whether the leader's address is on loopback, so that all launchers of the run are on this machine.
bool on_loopback(const ElasticOptions& options, const LaunchOptions& launch);

// Runs the launch and returns the exit status. InvalidArgument: the options are wrong.
int launch_elastic(const ElasticOptions& options, const LaunchOptions& launch, const JobSecurity& security,
                   const std::function<GroupOptions(int64_t round)>& group);

}  // namespace cohort::cli
