// The exchange of workers that take local steps, and bring their parameters together now and then (outer_step.h).
#pragma once

#include "step/exchange/exchange.h"

namespace cohort {

// Makes the exchange of GradientPath::kLocalSteps. InvalidArgument: the rule has what workers have to agree on.
std::unique_ptr<Exchange> make_local_steps_exchange(const ExchangeParts& parts);

}  // namespace cohort
