// The agreement is two numbers of each process. Only where they differ do the processes show each other what they have
// recorded, and come to the same verdict from it.
#include "wings/xla/record/hosts.h"

#include <algorithm>
#include <sstream>

#include "base/fail.h"
#include "wings/xla/record/program.h"

namespace cohort::record {

namespace {

constexpr std::string_view kInput = "in ";
constexpr std::size_t kLongestLine = 300;

// What a process has recorded.
struct Recorded {
  std::string sums;                // the types of the sums
  std::string hash;                // empty: its devices have recorded different programs
  std::vector<std::string> lines;  // of the program's signature

  std::vector<std::string> inputs() const {
    std::vector<std::string> list;
    std::copy_if(lines.begin(), lines.end(), std::back_inserter(list),
                 [](const std::string& line) { return line.starts_with(kInput); });
    return list;
  }
};

std::string to_text(const Program* program, std::span<const TensorType> sums) {
  std::string text;
  for (const TensorType& type : sums) text += (text.empty() ? "" : ", ") + to_string(type);
  return program == nullptr ? text + "\n\n" : text + '\n' + program->hash() + '\n' + program->signature();
}

Recorded from_text(const std::string& text) {
  Recorded recorded;
  std::istringstream in(text);
  std::getline(in, recorded.sums);
  std::getline(in, recorded.hash);
  for (std::string line; std::getline(in, line);) recorded.lines.push_back(line.substr(0, kLongestLine));
  return recorded;
}

std::string line_of(const Recorded& recorded, std::size_t at) {
  return at < recorded.lines.size() ? "\"" + recorded.lines[at] + "\"" : "its end";
}

// Returns the number of the line among those that are operations.
std::size_t operation_of(const Recorded& recorded, std::size_t line) {
  std::size_t before = 0;
  for (std::size_t i = 0; i < std::min(line, recorded.lines.size()); ++i) {
    const std::string& each = recorded.lines[i];
    before += each.starts_with(kInput) || each.starts_with("scalars ") ? 0 : 1;
  }
  return before;
}

[[noreturn]] void refuse(const Hosts& hosts, const Recorded& first, const Recorded& other, int host) {
  std::size_t at = 0;
  while (at < first.lines.size() && at < other.lines.size() && first.lines[at] == other.lines[at]) ++at;
  fail<FailedPrecondition>("[record] the hosts have recorded different programs from values of the same shapes: ",
                           hosts.name(0), " has ", first.hash, ", ", hosts.name(host), " has ", other.hash,
                           "; the first that differs is operation ", operation_of(first, at), ", ", line_of(first, at),
                           " there and ", line_of(other, at), " here: all of them have to run the same program");
}

// Compares what the first process has recorded with what the others have. Returns if it is a matter of shapes.
void compare(const Hosts& hosts, const std::vector<std::string>& texts) {
  const Recorded first = from_text(texts.front());
  for (int host = 1; host < static_cast<int>(texts.size()); ++host) {
    const Recorded other = from_text(texts[static_cast<std::size_t>(host)]);
    if (first.sums != other.sums) {
      fail<FailedPrecondition>("[record] the hosts wait for different sums over the replicas: ", hosts.name(0),
                               " for [", first.sums.substr(0, kLongestLine), "], ", hosts.name(host), " for [",
                               other.sums.substr(0, kLongestLine), "]: all of them have to run the same program");
    }
    const bool both = !first.hash.empty() && !other.hash.empty();
    if (both && first.hash != other.hash && first.inputs() == other.inputs()) refuse(hosts, first, other, host);
  }
}

}  // namespace

bool agree_on_program(Hosts& hosts, const Program* program, std::span<const TensorType> sums) {
  const int64_t mine = program == nullptr ? 0 : static_cast<int64_t>(program->fingerprint());
  const auto all = hosts.gather("the launch of what was recorded", {mine, static_cast<int64_t>(sums.size())});
  const bool same = std::all_of(all.begin(), all.end(), [&](const auto& each) { return each == all.front(); });
  if (same && mine != 0) return true;
  compare(hosts, hosts.gather_texts(to_text(program, sums)));
  return false;
}

void agree_on_steps(Hosts& hosts, const Program& program, int64_t steps) {
  const auto all = hosts.gather("the launch of a loop of steps", {static_cast<int64_t>(program.fingerprint()), steps});
  for (std::size_t host = 1; host < all.size(); ++host) {
    if (all[host] == all.front()) continue;
    const auto name = [&](std::size_t which) { return hosts.name(static_cast<int>(which)); };
    if (all[host][0] != all[0][0]) {
      fail<FailedPrecondition>("[record] ", name(0), " and ", name(host), " were to begin loops of different programs");
    }
    fail<FailedPrecondition>("[record] ", name(0), " was to begin ", all[0][1], " step(s) as a loop, ", name(host), " ",
                             all[host][1], ": the hosts have to read values after the same steps");
  }
}

}  // namespace cohort::record
