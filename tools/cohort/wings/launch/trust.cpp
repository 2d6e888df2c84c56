#include "wings/launch/trust.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/fail.h"
#include "rpc/own_folder.h"
#include "rpc/security.h"

namespace cohort::cli {

namespace {

constexpr int kFirstDescriptor = 10;  // shells use those below

std::string draw_secret() {
  std::array<unsigned char, 32> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    fail<Unavailable>("[launch] no random bytes: ", std::strerror(errno));
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) text += {kDigits[byte >> 4], kDigits[byte & 15]};
  return text;
}

[[noreturn]] void fail_at(const std::string& file) {
  fail<Unavailable>("[launch] ", file, ", for the secret of this user's launchers: ", std::strerror(errno));
}

// A new file with this text, which is removed again.
class Draft {
 public:
  Draft(std::string file, const std::string& text) : file_(std::move(file)) {
    const int fd = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (fd < 0) fail_at(file_);
    const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    const int error = errno;
    ::close(fd);
    if (written) return;
    ::unlink(file_.c_str());
    errno = error;
    fail_at(file_);
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  ~Draft() { ::unlink(file_.c_str()); }

  const std::string& file() const { return file_; }

 private:
  std::string file_;
};

// Returns the name of a file with the secret that all launchers of this user on this machine share. The first one makes
// it, whole: by a link to a file that is complete.
std::string secret_of_user() {
  std::string folder;
  try {
    folder = own_folder();
  } catch (const FailedPrecondition& error) {
    fail<FailedPrecondition>("[launch] no secret of this user's launchers is kept: ", error.what(),
                             "; remove it, or give --secret_file");
  }
  std::string file = folder + "/secret";
  if (std::filesystem::exists(file)) return file;
  const Draft draft(c10::str(file, ".", ::getpid()), draw_secret());
  if (::link(draft.file().c_str(), file.c_str()) != 0 && errno != EEXIST) fail_at(file);
  return file;
}

std::string absolute(const std::string& file) {
  return file.empty() ? "" : std::filesystem::absolute(file).string();
}

void check(const TrustOptions& options) {
  const bool tls = !options.tls_ca.empty() || !options.tls_cert.empty() || !options.tls_key.empty();
  if (tls + !options.secret_file.empty() + options.insecure > 1) {
    fail<InvalidArgument>("[launch] --insecure, --secret_file and --tls_ca exclude each other, but more than one came");
  }
  if (tls && (options.tls_ca.empty() || options.tls_cert.empty() || options.tls_key.empty())) {
    fail<InvalidArgument>("[launch] --tls_ca, --tls_cert and --tls_key belong together, got \"", options.tls_ca,
                          "\", \"", options.tls_cert, "\" and \"", options.tls_key, "\"");
  }
}

}  // namespace

Trust::Trust(const TrustOptions& options, SecretSource source, const std::string& handed) {
  check(options);
  for (const char* name : {"COHORT_SECRET_FD", "COHORT_SECRET_FILE", "COHORT_TLS_CA", "COHORT_TLS_CERT",
                           "COHORT_TLS_KEY", "COHORT_INSECURE"}) {
    variables_[name] = "";
  }
  if (const std::string secret = handed.empty() ? choose(options, source) : handed; !secret.empty()) keep(secret);
  if (insecure_) variables_["COHORT_INSECURE"] = "1";
  if (!secret_.empty() || given_.ca_file.empty()) return;
  variables_["COHORT_TLS_CA"] = given_.ca_file;
  variables_["COHORT_TLS_CERT"] = given_.certificate_file;
  variables_["COHORT_TLS_KEY"] = given_.key_file;
}

// Decides what the job's processes prove to each other. Returns its secret, if it is that.
std::string Trust::choose(const TrustOptions& options, SecretSource source) {
  given_ = {.ca_file = absolute(options.tls_ca),
            .certificate_file = absolute(options.tls_cert),
            .key_file = absolute(options.tls_key),
            .secret_file = options.secret_file};
  insecure_ = options.insecure;
  if (!given_.given() && !insecure_) {
    ::unsetenv("COHORT_SECRET_FD");  // the secret of a job that this launcher is a worker of
    const JobSecurity outside = job_security({}, false);
    given_ = outside.security;
    insecure_ = outside.allow_insecure;
  }
  if (!given_.given() && !insecure_) {
    if (source == SecretSource::kDrawn) return draw_secret();
    if (source == SecretSource::kOfUser) given_.secret_file = secret_of_user();
  }
  (void)tls_identity(given_);  // says what is wrong with the files
  return given_.secret_file.empty() ? "" : secret_in(given_.secret_file);
}

Trust::~Trust() {
  if (fd_ >= 0) ::close(fd_);
}

// Puts the secret into a file of memory that nobody can change, and that processes which are started inherit.
void Trust::keep(const std::string& secret) {
  const int made = ::memfd_create("cohort secret", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  fd_ = made < 0 ? -1 : ::fcntl(made, F_DUPFD, kFirstDescriptor);
  if (made >= 0) ::close(made);
  const bool good = fd_ >= 0 && ::write(fd_, secret.data(), secret.size()) == static_cast<ssize_t>(secret.size()) &&
                    ::fcntl(fd_, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
  if (!good) fail<Unavailable>("[launch] no memory for the job's secret: ", std::strerror(errno));
  secret_ = secret;
  given_ = {.secret_file = c10::str("/proc/self/fd/", fd_)};
  variables_["COHORT_SECRET_FD"] = std::to_string(fd_);
}

SecurityOptions Trust::security() const {
  return given_;
}

}  // namespace cohort::cli
