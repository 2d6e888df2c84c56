#include "wings/launch/elastic/roster.h"

#include <c10/util/StringUtil.h>

#include <algorithm>

#include "cohort/preemption.h"

namespace cohort::cli {

namespace {

constexpr int kMostWorkers = 1 << 16;  // the most workers of one agent
constexpr int kLastPort = 65535;
constexpr int kLastCode = 255;
constexpr std::size_t kLongestName = 1000;

bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= kLongestName;
}

Order exit_with(int code) {
  Order order;
  order.set_kind(Order::EXIT);
  order.set_code(code);
  return order;
}

}  // namespace

std::optional<std::string> misfit(const Report& report) {
  if (!is_name(report.agent()) || !is_name(report.host())) return "its agent or its host has no name";
  if (report.port() < 1 || report.port() > kLastPort) return c10::str("its port is ", report.port());
  if (report.workers() < 0 || report.workers() > kMostWorkers) return c10::str("it has ", report.workers(), " workers");
  if (report.round() < 0) return c10::str("its round is ", report.round());
  if (report.code() < 0 || report.code() > kLastCode) return c10::str("its status is ", report.code());
  return std::nullopt;
}

std::optional<std::string> misfit(const Order& order, int nproc) {
  if (!Order::Kind_IsValid(order.kind())) return c10::str("its kind is ", static_cast<int>(order.kind()));
  if (order.code() < 0 || order.code() > kLastCode) return c10::str("its status is ", order.code());
  if (order.kind() != Order::RUN) return std::nullopt;
  if (order.workers() < 1 || order.workers() > nproc) {
    return c10::str("it wants ", order.workers(), " workers, there are ", nproc);
  }
  // The least world of all, less the workers, would be beyond the range of an int.
  const bool fits = order.world() >= order.workers() && order.first_rank() <= order.world() - order.workers();
  if (order.first_rank() < 0 || !fits || order.group() < 0) {
    return c10::str("it has ranks from ", order.first_rank(), " on of ", order.world(), " for group ", order.group());
  }
  if (order.round() < 1) return c10::str("its round is ", order.round());
  if (is_name(order.master_host()) && order.master_port() >= 1 && order.master_port() <= kLastPort) return std::nullopt;
  return c10::str("it names ", order.master_host(), ":", order.master_port(), " for worker 0");
}

Order AgentRoster::exchange(const Report& report, Time now) {
  const auto sender = [&](const Agent& each) { return is_from(each, report); };
  if (report.leaving() && std::none_of(agents_.begin(), agents_.end(), sender)) return exit_with(0);
  Agent& agent = agent_of(report, now);
  // The network may deliver a report that was given up after the one that took its place. Nobody waits for its answer.
  if (report.number() < agent.report.number()) return {};
  // A report that is sent again says what the agent did before it had an answer to the first one.
  const bool is_new = report.number() > agent.report.number();
  is_new ? hear(agent, report, now) : agent.alive.hear(now);
  if (report.leaving()) {
    note(c10::str(report.agent(), " leaves with ", agent.report.workers(), " worker(s)"));
    if (agent.given > 0) ending_ = lost_ = true;
    std::erase_if(agents_, sender);
    advance(now);
    return exit_with(0);
  }
  advance(now);
  Agent& same = agent_of(report, now);  // advance() may have moved the agent
  Order order = order_for(same);
  same.told_exit = order.kind() == Order::EXIT;
  return order;
}

void AgentRoster::finish(int code) {
  if (!finished_) finished_ = code;
}

bool AgentRoster::heard_by_all(Time now) {
  drop_silent(now);
  return finished_ && std::all_of(agents_.begin(), agents_.end(), [](const Agent& each) { return each.told_exit; });
}

std::vector<std::string> AgentRoster::take_news() {
  return std::exchange(news_, {});
}

bool AgentRoster::is_from(const Agent& agent, const Report& report) {
  return agent.report.agent() == report.agent() && agent.alive.is(report.id());
}

AgentRoster::Agent& AgentRoster::agent_of(const Report& report, Time now) {
  for (Agent& each : agents_) {
    if (is_from(each, report)) return each;
  }
  Liveness alive(options_.silence);
  alive.enter(report.id(), now);
  agents_.push_back({.report = report, .alive = alive});
  last_join_ = now;
  note(c10::str(report.agent(), " joins with ", report.workers(), " worker(s)"));
  return agents_.back();
}

void AgentRoster::hear(Agent& agent, const Report& report, Time now) {
  const int workers = agent.report.workers();  // the workers that are left to the agent
  agent.report = report;
  agent.report.set_workers(workers);
  agent.alive.hear(now);
  if (!running_ || agent.given == 0 || agent.ended || report.running()) return;
  const bool began = report.round() == round_;
  if (!began && !ending_) return;
  agent.ended = true;
  if (!began) return agent.report.set_code(kPreemptedExitCode);
  if (report.asked() || report.code() == 0) return;
  if (failures_ == 0) first_failure_ = now;
  agent.failure = ++failures_;
  last_code_ = report.code();
  ending_ = true;
  note(c10::str("round ", round_, ": a worker of ", report.agent(), " failed with status ", report.code()));
}

void AgentRoster::drop_silent(Time now) {
  std::erase_if(agents_, [&](const Agent& each) {
    if (!each.alive.lost(now)) return false;
    note(
        c10::str(each.report.agent(), " is lost: nothing was heard of it for ", options_.silence.count() / 1000, " s"));
    if (each.given > 0) ending_ = lost_ = true;
    // Its workers run on until it, or its guard, has noticed that nothing is heard of the leader.
    if (each.given > 0 || each.report.running()) {
      leases_end_ = std::max(leases_end_, now - each.alive.silence(now) + options_.lease);
    }
    return true;
  });
}

// Returns whether workers of an earlier round may still run somewhere.
bool AgentRoster::old_workers_may_run(Time now) const {
  return now < leases_end_ ||
         std::any_of(agents_.begin(), agents_.end(), [](const Agent& each) { return each.report.running(); });
}

void AgentRoster::advance(Time now) {
  drop_silent(now);
  if (finished_) return;
  if (running_) {
    if (!ending_ && newcomers()) {
      ending_ = true;
      note(c10::str("round ", round_, ": its workers save and end, to begin again with more"));
    }
    close_round(now);
  }
  if (!running_ && !finished_) open_round(now);
}

void AgentRoster::close_round(Time now) {
  const bool all_ended =
      std::all_of(agents_.begin(), agents_.end(), [](const Agent& each) { return each.given == 0 || each.ended; });
  if (!all_ended) return;
  const bool well = std::all_of(agents_.begin(), agents_.end(),
                                [](const Agent& each) { return each.given == 0 || each.report.code() == 0; });
  if (well && !lost_) return finish(0);
  const auto failed_otherwise = [](const Agent& each) {
    return each.failure > 0 && each.report.code() != kPreemptedExitCode;
  };
  if (!lost_ && std::any_of(agents_.begin(), agents_.end(), failed_otherwise)) {
    // The workers of other agents fail as well when an agent is lost, perhaps before that is known.
    if (!any_killed() && now - first_failure_ < options_.settle) return;
    blame();
  }
  running_ = ending_ = lost_ = false;
  failures_ = 0;
  for (Agent& each : agents_) {
    each.given = 0;
    each.failure = 0;
  }
  wait_ = wait_for_workers(now);
}

// Removes the worker that caused the failure: each that was killed, or if none was, the one that failed first.
void AgentRoster::blame() {
  const bool killed = any_killed();
  for (Agent& each : agents_) {
    const bool its_own = killed ? each.failure > 0 && each.report.by_signal() : each.failure == 1;
    if (!its_own) continue;
    each.report.set_workers(each.report.workers() - 1);
    note(c10::str(each.report.agent(), " goes on with ", each.report.workers(), " worker(s)"));
  }
}

void AgentRoster::open_round(Time now) {
  const int there = total();
  if (there < options_.least) {
    if (!wait_.over(now)) return wait_for_more(there, now);
    note(c10::str("given up: ", there, " worker(s) are there, ", options_.least, " are needed"));
    return finish(last_code_);
  }
  if (there < options_.most && now - last_join_ < options_.last_call) return;
  if (old_workers_may_run(now)) return;
  ++round_;
  running_ = true;
  world_ = 0;
  int group = 0;
  for (Agent& each : agents_) {
    each.given = std::min(each.report.workers(), options_.most - world_);
    each.first_rank = world_;
    each.ended = false;
    if (each.given > 0) each.group = group++;
    world_ += each.given;
  }
  note(c10::str("round ", round_, ": ", world_, " worker(s) on ", group, " agent(s)"));
}

WaitReport AgentRoster::wait_for_workers(Time now) const {
  return {{.limit = options_.join_timeout}, now};
}

void AgentRoster::wait_for_more(int there, Time now) {
  if (!wait_.due(now)) return;
  const auto seconds = [](auto span) { return std::chrono::duration_cast<std::chrono::seconds>(span).count(); };
  note(c10::str("waits for ", options_.least - there, " more worker(s): ", there, " of ", options_.least,
                " are there (", seconds(wait_.waited(now)), " of ", seconds(options_.join_timeout), " s)"));
}

bool AgentRoster::any_killed() const {
  return std::any_of(agents_.begin(), agents_.end(),
                     [](const Agent& each) { return each.failure > 0 && each.report.by_signal(); });
}

bool AgentRoster::newcomers() const {
  return std::min(total(), options_.most) > world_;
}

int AgentRoster::total() const {
  int sum = 0;
  for (const Agent& each : agents_) sum += each.report.workers();
  return sum;
}

Order AgentRoster::order_for(const Agent& agent) const {
  if (finished_) return exit_with(*finished_);
  Order order;
  if (!running_ || agent.given == 0 || agent.ended) return order;
  order.set_round(round_);
  order.set_kind(ending_ ? Order::END : Order::RUN);
  if (ending_) return order;
  const Agent& first = *std::find_if(agents_.begin(), agents_.end(), [](const Agent& each) { return each.given > 0; });
  order.set_first_rank(agent.first_rank);
  order.set_workers(agent.given);
  order.set_world(world_);
  order.set_group(agent.group);
  order.set_master_host(first.report.host());
  order.set_master_port(first.report.port());
  return order;
}

}  // namespace cohort::cli
