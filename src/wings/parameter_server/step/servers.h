#pragma once

#include <memory>

#include "step/exchange/exchange.h"

namespace cohort {

// Makes the exchange for variables that other processes keep and update.
std::unique_ptr<Exchange> make_servers_exchange(const ExchangeParts& parts);

}  // namespace cohort
