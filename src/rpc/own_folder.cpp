#include "rpc/own_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/fail.h"

namespace cohort {

std::string own_folder() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  const std::string base = runtime != nullptr && *runtime != '\0' ? runtime : "/tmp";
  std::string folder = c10::str(base, "/cohort-", ::getuid());
  struct stat found {};
  if ((::mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) || ::lstat(folder.c_str(), &found) != 0) {
    fail<Unavailable>("[security] the folder ", folder, " cannot be made: ", std::strerror(errno));
  }
  const bool ours = S_ISDIR(found.st_mode) && found.st_uid == ::getuid() && (found.st_mode & (S_IRWXG | S_IRWXO)) == 0;
  if (!ours) fail<FailedPrecondition>("[security] the folder ", folder, " is not this user's alone");
  return folder;
}

}  // namespace cohort
