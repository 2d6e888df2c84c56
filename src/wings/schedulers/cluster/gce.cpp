#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "cohort/cluster/scheduler_resolvers.h"
#include "rpc/address.h"
#include "wings/schedulers/cluster/http.h"

namespace cohort {

namespace {

constexpr const char* kApi = "https://compute.googleapis.com/compute/v1/";
constexpr const char* kToken =
    "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token";

// Fetches JSON and reads it. A field that the reader misses is an error that names the URL.
template <typename Read>
auto ask(const GceOptions& options, const HttpRequest& request, Read&& read) {
  const std::string answer = options.fetch(request);
  try {
    return read(nlohmann::json::parse(answer));
  } catch (const nlohmann::json::exception& error) {
    fail<InvalidArgument>("[cluster] gce: ", request.url, " has an unexpected answer: ", error.what());
  }
}

std::string token(const GceOptions& options) {
  if (!options.token.empty()) return options.token;
  return ask(options, {.url = kToken, .headers = {"Metadata-Flavor: Google"}},
             [](const nlohmann::json& tree) { return tree.at("access_token").get<std::string>(); });
}

}  // namespace

GceResolver::GceResolver(GceOptions options) : options_(std::move(options)) {
  if (!options_.project.empty() && !options_.zone.empty() && !options_.instance_group.empty()) return;
  fail<InvalidArgument>("[cluster] gce: needs a project, a zone and an instance group, got \"", options_.project,
                        "\", \"", options_.zone, "\" and \"", options_.instance_group, "\"");
}

ClusterSpec GceResolver::cluster_spec() const {
  const std::vector<std::string> headers = {"Authorization: Bearer " + token(options_),
                                            "Content-Type: application/json"};
  const std::string zone =
      kApi + ("projects/" + url_escaped(options_.project)) + "/zones/" + url_escaped(options_.zone);
  const auto instances =
      ask(options_,
          {.url = zone + "/instanceGroups/" + url_escaped(options_.instance_group) + "/listInstances",
           .headers = headers,
           .body = R"({"instanceState": "RUNNING"})"},
          [](const nlohmann::json& tree) {
            std::vector<std::string> names;
            for (const auto& item : tree.value("items", nlohmann::json::array())) {
              const auto url = item.at("instance").get<std::string>();
              names.push_back(url.substr(url.rfind('/') + 1));
            }
            std::sort(names.begin(), names.end());
            return names;
          });
  std::vector<std::string> addresses;
  for (const std::string& name : instances) {
    const auto host = ask(options_, {.url = zone + "/instances/" + url_escaped(name), .headers = headers},
                          [](const nlohmann::json& tree) {
                            return tree.at("networkInterfaces").at(0).at("networkIP").get<std::string>();
                          });
    addresses.push_back(Address{host, options_.port}.to_string());
  }
  if (addresses.empty()) {
    fail<FailedPrecondition>("[cluster] gce: the instance group ", options_.instance_group, " has no running instance");
  }
  return ClusterSpec(std::map<std::string, std::vector<std::string>>{{options_.task.type, addresses}});
}

}  // namespace cohort
