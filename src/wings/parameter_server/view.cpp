#include "wings/parameter_server/view.h"

#include "base/fail.h"

namespace cohort {

void require_view_of(int num_servers, const parameter_server::View& view, const std::string& who) {
  if (view.number() == 0 && view.homes_size() == 0) return;
  if (view.homes_size() != num_servers) {
    fail<InvalidArgument>("[parameter server] ", who, ": a view of ", view.homes_size(), " homes came, there are ",
                          num_servers);
  }
  for (int i = 0; i < num_servers; ++i) {
    const parameter_server::View::Home& home = view.homes(i);
    const auto is_other = [&](int server) {
      return server == -1 || (server >= 0 && server < num_servers && server != home.primary());
    };
    if (home.primary() >= 0 && home.primary() < num_servers && is_other(home.backup()) && is_other(home.joining())) {
      continue;
    }
    fail<InvalidArgument>("[parameter server] ", who, ": a view came with home ", i, " on server ", home.primary(),
                          ", its backup ", home.backup(), " and joining ", home.joining(), "; the servers are 0 to ",
                          num_servers - 1);
  }
}

}  // namespace cohort
