// A switch between network namespaces, in the place of `tc netem`: it loses, delays, reorders and doubles frames, and
// cuts links, each direction for itself.
//
// Usage (as root): chaos_switch SEED NAMESPACE...
// Makes the device eth0 in each namespace, which is the switch's port of that number, and prints "ready". A frame goes
// to the port that its destination (02:00:00:00:00:N+1) is plugged into; whatever is sent to all is dropped, so
// neighbours have to be known. Commands on standard input, one a line:
//   link FROM TO [loss=F] [duplicate=F] [reorder=F] [delay=MS] [jitter=MS] [down=0|1]   what is not given is 0; * is
//   each plug N PORT                                                                          destination N is at this
//   port
// Ends with standard input.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <map>
#include <queue>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLongestFrame = 65'600;
constexpr std::size_t kMostWaiting = 200'000;  // frames; more are dropped

struct Link {
  double loss = 0.0;
  double duplicate = 0.0;
  double reorder = 0.0;  // the share of frames that waits for 20 ms more
  double delay = 0.0;    // ms
  double jitter = 0.0;   // ms, uniform; frames do not overtake each other by it
  bool down = false;
  Clock::time_point last{};
};

struct Frame {
  Clock::time_point due;
  uint64_t number = 0;
  std::size_t port = 0;
  std::string bytes;
  bool operator<(const Frame& other) const { return std::tie(due, number) > std::tie(other.due, other.number); }
};

int checked(int result, const std::string& what) {
  if (result < 0) throw std::runtime_error("chaos_switch: " + what + ": " + std::strerror(errno));
  return result;
}

int make_port(const std::string& name) {
  const int space = checked(open(("/var/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC), name);
  checked(setns(space, CLONE_NEWNET), "setns");
  close(space);
  const int port = checked(open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), "/dev/net/tun");
  ifreq request{};
  std::strcpy(request.ifr_name, "eth0");
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  checked(ioctl(port, TUNSETIFF, &request), "TUNSETIFF");
  return port;
}

class Switch {
 public:
  Switch(uint64_t seed, const std::vector<std::string>& names) : random_(seed), links_(names.size()) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      ports_.push_back(make_port(names[i]));
      links_[i].resize(names.size());
      plugged_.push_back(i);
    }
  }

  void run() {
    std::vector<pollfd> polled{{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0}};
    for (const int port : ports_) polled.push_back({.fd = port, .events = POLLIN, .revents = 0});
    while (true) {
      timespec wait{.tv_sec = 3600, .tv_nsec = 0};
      if (!waiting_.empty()) {
        const auto left = std::chrono::nanoseconds(std::max(waiting_.top().due - Clock::now(), Clock::duration{}));
        wait = {.tv_sec = left.count() / 1'000'000'000, .tv_nsec = left.count() % 1'000'000'000};
      }
      checked(ppoll(polled.data(), polled.size(), &wait, nullptr), "ppoll");
      if (polled[0].revents != 0 && !read_commands()) return;
      for (std::size_t i = 0; i < ports_.size(); ++i) {
        if ((polled[i + 1].revents & POLLIN) != 0) read_frames(i);
      }
      deliver();
    }
  }

 private:
  bool chance(double share) { return share > 0.0 && std::uniform_real_distribution<>()(random_) < share; }

  bool read_commands() {
    std::array<char, 4096> some{};
    const ssize_t count = read(STDIN_FILENO, some.data(), some.size());
    if (count <= 0) return false;
    typed_.append(some.data(), static_cast<std::size_t>(count));
    for (std::size_t end = typed_.find('\n'); end != std::string::npos; end = typed_.find('\n')) {
      obey(typed_.substr(0, end));
      typed_.erase(0, end + 1);
    }
    return true;
  }

  void obey(const std::string& line) {
    std::istringstream words(line);
    std::string verb;
    std::string from;
    std::string to;
    std::string setting;
    words >> verb >> from >> to;
    if (verb == "plug") {
      plugged_.at(std::stoul(from)) = std::stoul(to);
      return;
    }
    if (verb != "link") throw std::runtime_error("chaos_switch: got \"" + line + "\", wanted link or plug");
    Link link;
    while (words >> setting) set(link, setting);
    for (std::size_t i = 0; i < ports_.size(); ++i) {
      for (std::size_t j = 0; j < ports_.size(); ++j) {
        if ((from == "*" || std::stoul(from) == i) && (to == "*" || std::stoul(to) == j)) links_[i][j] = link;
      }
    }
  }

  static void set(Link& link, const std::string& setting) {
    static const std::map<std::string, double Link::*> kShares{{"loss", &Link::loss},
                                                               {"duplicate", &Link::duplicate},
                                                               {"reorder", &Link::reorder},
                                                               {"delay", &Link::delay},
                                                               {"jitter", &Link::jitter}};
    const std::size_t equals = setting.find('=');
    const std::string name = setting.substr(0, equals);
    const double value = std::stod(setting.substr(equals + 1));
    if (name == "down") {
      link.down = value != 0.0;
      return;
    }
    const auto found = kShares.find(name);
    if (found == kShares.end()) {
      throw std::runtime_error("chaos_switch: got \"" + setting +
                               "\", wanted loss, duplicate, reorder, delay, jitter or down");
    }
    link.*found->second = value;
  }

  void read_frames(std::size_t from) {
    std::array<char, kLongestFrame> frame{};
    for (int i = 0; i < 64; ++i) {
      const ssize_t count = read(ports_[from], frame.data(), frame.size());
      if (count < 14) return;
      if ((frame[0] & 1) != 0) continue;  // to all
      const auto destination = static_cast<std::size_t>(static_cast<uint8_t>(frame[5])) - 1;
      if (destination < plugged_.size())
        send(from, plugged_[destination], {frame.data(), static_cast<std::size_t>(count)});
    }
  }

  void send(std::size_t from, std::size_t to, const std::string& bytes) {
    Link& link = links_[from][to];
    if (link.down || chance(link.loss)) return;
    for (int copies = chance(link.duplicate) ? 2 : 1; copies > 0 && waiting_.size() < kMostWaiting; --copies) {
      double wait =
          link.delay + (link.jitter > 0.0 ? std::uniform_real_distribution<>(0.0, link.jitter)(random_) : 0.0);
      auto due = std::max(link.last, Clock::now() + std::chrono::microseconds(static_cast<int64_t>(wait * 1000)));
      link.last = due;
      if (chance(link.reorder)) due += std::chrono::milliseconds(20);
      waiting_.push({.due = due, .number = ++number_, .port = to, .bytes = bytes});
    }
  }

  void deliver() {
    for (const auto now = Clock::now(); !waiting_.empty() && waiting_.top().due <= now; waiting_.pop()) {
      const Frame& frame = waiting_.top();
      // A port that takes no more has lost the frame, as a real one.
      if (write(ports_[frame.port], frame.bytes.data(), frame.bytes.size()) < 0) continue;
    }
  }

  std::mt19937_64 random_;
  std::vector<int> ports_;
  std::vector<std::vector<Link>> links_;  // by from, to
  std::vector<std::size_t> plugged_;      // ports by destination
  std::priority_queue<Frame> waiting_;
  uint64_t number_ = 0;
  std::string typed_;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 3) throw std::runtime_error("usage: chaos_switch SEED NAMESPACE...");
    Switch machine(std::stoull(argv[1]), {argv + 2, argv + argc});
    std::cout << "ready" << std::endl;
    machine.run();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
