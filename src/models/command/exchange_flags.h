// The flags of the exchange of gradients.
#pragma once

#include <string>

#include "cohort/cluster/multi_worker_strategy.h"
#include "cohort/exchange_options.h"
#include "cohort/models/strategy_flags.h"

namespace cohort {

// Returns the algorithm that --all_reduce_alg names.
std::string exchange_of(const StrategyFlags& flags);
// InvalidArgument: --num_packs is negative or too large.
int packs_of(const StrategyFlags& flags);
// InvalidArgument: an algorithm between workers is named, and there are none.
void check_exchange(const StrategyFlags& flags);
// Returns how workers send messages to each other.
CommunicationOptions communication_of(const StrategyFlags& flags);
// Returns how gradients are packed into messages, and how these travel.
ExchangeOptions message_options(const StrategyFlags& flags);
// Returns what the flags say of the replicas of one process.
ExchangeOptions exchange_options(const StrategyFlags& flags);
// Returns how workers exchange parameters in place of gradients.
LocalSgdOptions local_sgd_of(const StrategyFlags& flags);
// Adds the flags, in their order.
void describe_exchange(StrategyFlags& flags, ConfigFields& fields);

}  // namespace cohort
