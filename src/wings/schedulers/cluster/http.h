// HTTP requests and URLs for the resolvers of clouds, made with libcurl.
#pragma once

#include <string>

namespace cohort {

std::string url_escaped(const std::string& text);

}  // namespace cohort
