#include "wings/schedulers/cluster/http.h"

#include <curl/curl.h>

#include <memory>

#include "base/fail.h"
#include "cohort/cluster/scheduler_resolvers.h"

namespace cohort {

namespace {

struct FreeHandle {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using Handle = std::unique_ptr<CURL, FreeHandle>;

Handle make_handle() {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  Handle handle(started == CURLE_OK ? curl_easy_init() : nullptr);
  if (!handle) fail<Internal>("[cluster] libcurl does not start");
  return handle;
}

std::size_t append(char* data, std::size_t item, std::size_t count, void* body) {
  static_cast<std::string*>(body)->append(data, item * count);
  return item * count;
}

std::string fetch(const HttpRequest& request) {
  const Handle handle = make_handle();
  std::string body;
  std::unique_ptr<curl_slist, FreeList> headers;
  for (const std::string& header : request.headers) {
    headers.reset(curl_slist_append(headers.release(), header.c_str()));
  }
  curl_easy_setopt(handle.get(), CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(handle.get(), CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle.get(), CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(handle.get(), CURLOPT_TIMEOUT_MS, static_cast<long>(request.timeout.count()));
  curl_easy_setopt(handle.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle.get(), CURLOPT_WRITEFUNCTION, &append);
  curl_easy_setopt(handle.get(), CURLOPT_WRITEDATA, &body);
  if (!request.ca_file.empty()) curl_easy_setopt(handle.get(), CURLOPT_CAINFO, request.ca_file.c_str());
  if (request.body) curl_easy_setopt(handle.get(), CURLOPT_POSTFIELDS, request.body->c_str());

  const CURLcode result = curl_easy_perform(handle.get());
  if (result != CURLE_OK) {
    fail<Unavailable>("[cluster] ", request.url, ": ", curl_easy_strerror(result));
  }
  long status = 0;
  curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &status);
  if (status == 200) return body;
  fail<Unavailable>("[cluster] ", request.url, ": answered ", status, ", wanted 200: ", body.substr(0, 500));
}

}  // namespace

HttpFetch http_fetch() {
  return fetch;
}

std::string url_escaped(const std::string& text) {
  const Handle handle = make_handle();
  const std::unique_ptr<char, void (*)(void*)> escaped(
      curl_easy_escape(handle.get(), text.c_str(), static_cast<int>(text.size())), curl_free);
  if (!escaped) fail<Internal>("[cluster] \"", text, "\" cannot be escaped for a URL");
  return escaped.get();
}

}  // namespace cohort
