#include "models/run/local_place.h"

#include <cctype>

#include "base/fail.h"

namespace cohort {

void require_local(const std::string& what, const std::string& place) {
  const std::size_t mark = place.find("://");
  if (mark == std::string::npos) return;
  std::size_t begin = mark;
  while (begin > 0 && std::isalnum(static_cast<unsigned char>(place[begin - 1])) != 0) --begin;
  if (begin == mark || (begin > 0 && place[begin - 1] != ',' && place[begin - 1] != ' '))
    return;  // a file name with these letters
  fail<InvalidArgument>(what, "=", place, " is an address of ", place.substr(begin, mark - begin),
                        ", wanted a folder or files: object stores are not read; mount it (gcsfuse, s3fs, ...) and ",
                        "give the path that it is mounted at");
}

}  // namespace cohort
