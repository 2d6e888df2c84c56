#include "wings/etcd/rpc/etcd_address.h"

#include <algorithm>
#include <cctype>

#include "base/fail.h"
#include "rpc/address.h"

namespace cohort {

namespace {

// Returns the text without what stands before an @: messages must not show a password.
std::string without_password(std::string_view text) {
  const std::size_t begin = text.find("://");
  const std::size_t at = text.rfind('@');
  if (begin == std::string_view::npos || at == std::string_view::npos) return std::string(text);
  return c10::str(text.substr(0, begin + 3), "...", text.substr(at));
}

[[noreturn]] void refuse_address(std::string_view text, const std::string& why) {
  fail<InvalidArgument>("[etcd] the coordination is \"", without_password(text), "\": ", why,
                        ", wanted etcd://HOST:PORT[,HOST:PORT...][/JOB], or etcds:// for TLS");
}

// A job is one part of a key, and none of it may look like a further part.
bool is_job(std::string_view name) {
  return std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == ':';
  });
}

}  // namespace

std::string EtcdAddress::shown() const {
  std::string text = "etcd at ";
  for (const std::string& endpoint : endpoints) text += (&endpoint == endpoints.data() ? "" : ", ") + endpoint;
  return text;
}

EtcdAddress parse_etcd_address(std::string_view text) {
  EtcdAddress address;
  std::string_view rest = text;
  for (const std::string_view scheme : {"etcd://", "etcds://"}) {
    if (!text.starts_with(scheme)) continue;
    rest.remove_prefix(scheme.size());
    address.tls = scheme == "etcds://";
  }
  if (rest.size() == text.size()) refuse_address(text, "it begins with another scheme");
  if (const std::size_t at = rest.rfind('@'); at != std::string_view::npos) {
    const std::string_view who = rest.substr(0, at);
    const std::size_t colon = who.find(':');
    if (colon == std::string_view::npos || colon == 0) refuse_address(text, "before the @ stands no USER:PASSWORD");
    address.user = who.substr(0, colon);
    address.password = who.substr(colon + 1);
    rest.remove_prefix(at + 1);
  }
  if (const std::size_t slash = rest.find('/'); slash != std::string_view::npos) {
    address.job = rest.substr(slash + 1);
    if (!is_job(address.job)) refuse_address(text, "the job has other characters than letters, digits and -_.:");
    rest = rest.substr(0, slash);
  }
  for (std::size_t begin = 0; begin <= rest.size();) {
    const std::size_t comma = std::min(rest.find(',', begin), rest.size());
    const std::string endpoint(rest.substr(begin, comma - begin));
    if (!parse_address(endpoint)) refuse_address(text, "\"" + endpoint + "\" is no address");
    address.endpoints.push_back(endpoint);
    begin = comma + 1;
  }
  return address;
}

}  // namespace cohort
