#pragma once

#include <memory>

#include "step/exchange/exchange.h"

namespace cohort {

// Makes the exchange whose sums and update are operations of the recorded step, which is begun for all replicas
// together.
std::unique_ptr<Exchange> make_recorded_exchange(const ExchangeParts& parts);

}  // namespace cohort
