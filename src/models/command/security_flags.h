// The flags that say who may speak to the tasks of a job.
#pragma once

#include "cohort/cluster/cluster_spec.h"
#include "cohort/models/strategy_flags.h"

namespace cohort {

// Fails if such a flag is set although the strategy's process speaks to no other, or if they exclude each other.
void check_security(const StrategyFlags& flags, bool joins_others);

// Adds the flags, in their order.
void describe_security(StrategyFlags& flags, ConfigFields& fields);

// Return what they say.
SecurityOptions security_of(const StrategyFlags& flags);
MembershipOptions membership_of(const StrategyFlags& flags);

}  // namespace cohort
