#include "models/command/security_flags.h"

#include <utility>

#include "base/fail.h"

namespace cohort {

SecurityOptions security_of(const StrategyFlags& flags) {
  return {.ca_file = flags.tls_ca,
          .certificate_file = flags.tls_cert,
          .key_file = flags.tls_key,
          .secret_file = flags.secret_file};
}

MembershipOptions membership_of(const StrategyFlags& flags) {
  return {.security = security_of(flags), .allow_insecure = flags.insecure};
}

void check_security(const StrategyFlags& flags, bool joins_others) {
  using Flag = std::pair<const char*, std::string>;
  for (const auto& [flag, value] :
       {Flag("secret_file", flags.secret_file), Flag("tls_ca", flags.tls_ca), Flag("tls_cert", flags.tls_cert),
        Flag("tls_key", flags.tls_key), Flag("insecure", flags.insecure ? "true" : "")}) {
    if (value.empty() || joins_others) continue;
    fail<InvalidArgument>(
        "[train] --", flag, "=", value, " has no meaning under --distribution_strategy=", flags.distribution_strategy,
        ", whose process speaks to no other; only under ", "multi_worker_mirrored, parameter_server and tpu");
  }
  if (flags.insecure && security_of(flags).given()) {
    fail<InvalidArgument>("[train] --insecure has no meaning with --secret_file or --tls_ca");
  }
}

}  // namespace cohort
