#include "models/command/security_flags.h"

#include <c10/util/StringUtil.h>

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
  return {.security = security_of(flags), .allow_insecure = flags.insecure, .coordination = flags.coordination};
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

void describe_security(StrategyFlags& flags, ConfigFields& fields) {
  const auto add = [&](const char* name, auto& setting, const std::string& help) {
    fields.add(name, setting, help).flag = c10::str("--", name);
  };
  add("secret_file", flags.secret_file,
      "secret of the job: a file of 16 bytes or more, the same for all tasks, which then speak (mutual TLS) to nobody "
      "else; empty: what cohort launch hands over, or COHORT_SECRET_FILE");
  add("tls_ca", flags.tls_ca, "certificates in place of a secret: that of the authority (PEM); empty: COHORT_TLS_CA");
  add("tls_cert", flags.tls_cert, "this task's certificate; empty: COHORT_TLS_CERT");
  add("tls_key", flags.tls_key, "its private key; empty: COHORT_TLS_KEY");
  add("insecure", flags.insecure,
      "whether tasks without a secret or certificates may speak to whoever reaches them; otherwise they stay on "
      "loopback");
}

}  // namespace cohort
