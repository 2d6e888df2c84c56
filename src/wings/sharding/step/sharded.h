#pragma once

#include <memory>

#include "step/exchange/exchange.h"

namespace cohort {

// Makes the exchange of replicas that share the states of the optimizer.
std::unique_ptr<Exchange> make_sharded_exchange(const ExchangeParts& parts);

}  // namespace cohort
