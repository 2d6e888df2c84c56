// Agent: the part of one launcher in an elastic run. It starts and ends its workers as the leader orders.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "wings/launch/elastic/rendezvous.h"
#include "wings/launch/group.h"
#include "wings/launch/plan.h"

namespace cohort::cli {

struct AgentOptions {
  LaunchOptions launch;                      // the program, nproc and further variables
  std::string host;                          // the address at which other machines reach this one
  std::chrono::milliseconds join_timeout{};  // the wait for a leader that was not there yet
  // Returns the options of a round, which say where its output goes.
  std::function<GroupOptions(int64_t round)> group;
};

// Runs until the leader ends the run or is lost (status 1), or this process is told to end. Returns the exit status.
int run_agent(Leader& leader, const AgentOptions& options, const Signals& signals, Guard& guard);

}  // namespace cohort::cli
