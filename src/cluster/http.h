// What the resolvers of clouds need of HTTP and URLs, by libcurl.
#pragma once

#include <string>

#include "cohort/cluster/cluster_resolver.h"

namespace cohort {

std::string url_escaped(const std::string& text);

}  // namespace cohort
