#include "wings/comm_hooks/strategy/options.h"

#include "base/fail.h"

namespace cohort {

namespace {

// What is said of the approximation has a meaning where it is chosen.
void require_power_sgd(const StrategyPlan& plan) {
  const ExchangeOptions& exchange = plan.exchange;
  const PowerSgdOptions& options = exchange.power_sgd;
  if (options == PowerSgdOptions()) return;
  if (exchange.gradient_compression != "power_sgd") {
    fail<InvalidArgument>("[strategy] ", plan.name, ": options of power_sgd came, but gradient_compression is ",
                          exchange.gradient_compression);
  }
  if (options.matrix_approximation_rank < 1 || options.start_power_sgd_iter < 0 ||
      !(options.min_compression_rate > 0.0)) {
    fail<InvalidArgument>("[strategy] ", plan.name, ": power_sgd has matrix_approximation_rank ",
                          options.matrix_approximation_rank, ", start_power_sgd_iter ", options.start_power_sgd_iter,
                          " and min_compression_rate ", options.min_compression_rate,
                          "; wanted 1 or more, 0 or more and more than 0");
  }
  if (options.start_power_sgd_iter > 0 || (exchange.num_packs == 1 && exchange.bytes_per_pack == 0)) return;
  fail<InvalidArgument>("[strategy] ", plan.name, ": num_packs is ", exchange.num_packs, " and bytes_per_pack ",
                        exchange.bytes_per_pack,
                        ", but with start_power_sgd_iter 0 there are only messages of factors");
}

// What is said of local steps has a meaning where there are some.
void require_local_sgd(const StrategyPlan& plan) {
  const LocalSgdOptions& options = plan.local_sgd;
  if (options == LocalSgdOptions()) return;
  if (options.sync_every < 1 || options.start_iter < 0 || !(options.outer_learning_rate > 0.0) ||
      !(options.outer_momentum >= 0.0) || options.outer_momentum >= 1.0) {
    fail<InvalidArgument>("[strategy] ", plan.name, ": local_sgd has sync_every ", options.sync_every, ", start_iter ",
                          options.start_iter, ", outer_learning_rate ", options.outer_learning_rate,
                          " and outer_momentum ", options.outer_momentum,
                          "; wanted 1 or more, 0 or more, more than 0, and 0 to below 1");
  }
  if (options.outer_momentum == 0.0 && !options.outer_nesterov) {
    fail<InvalidArgument>("[strategy] ", plan.name, ": local_sgd.outer_nesterov is false, and outer_momentum is 0");
  }
}

}  // namespace

void check_comm_hook_options(const StrategyPlan& plan) {
  require_power_sgd(plan);
  require_local_sgd(plan);
}

}  // namespace cohort
