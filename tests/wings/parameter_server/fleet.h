// Parameter servers as threads of the test, on loopback; killed by closing them.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cluster/free_port.h"
#include "wings/parameter_server/catalog.h"
#include "wings/parameter_server/client/client.h"
#include "wings/parameter_server/server/server.h"

namespace cohort::testing {

class Fleet {
 public:
  explicit Fleet(std::shared_ptr<const Catalog> catalog) : catalog_(std::move(catalog)) {
    for (const int port : free_ports("127.0.0.1", catalog_->num_servers())) {
      addresses_.push_back("127.0.0.1:" + std::to_string(port));
    }
    for (int i = 0; i < catalog_->num_servers(); ++i) {
      servers_.emplace_back();
      start(i);
    }
  }

  const std::vector<std::string>& addresses() const { return addresses_; }
  ParameterServer& server(int index) { return *servers_[static_cast<std::size_t>(index)].logic; }

  // Calls this before every call to a server, on the server's thread. What it throws is the answer.
  using Before = std::function<void(int server, const std::string& method)>;
  void before_calls(Before before) {
    const std::lock_guard lock(before_->mutex);
    before_->call = std::move(before);
  }

  void start(int index) {
    Server& server = servers_[static_cast<std::size_t>(index)];
    server.logic = std::make_shared<ParameterServer>(
        catalog_,
        ServingOptions{.index = index, .addresses = addresses_, .security = {}, .timeout = std::chrono::seconds(5)});
    server.rpc =
        std::make_unique<RpcServer>(addresses_[static_cast<std::size_t>(index)], RpcServerOptions{.threads = 4},
                                    [logic = server.logic, before = before_, index](
                                        const std::string& method, const std::shared_ptr<RpcCall>& call) {
                                      if (const Before interfere = before->get()) interfere(index, method);
                                      logic->handle(method, call);
                                    });
  }
  void kill(int index) {
    Server& server = servers_[static_cast<std::size_t>(index)];
    server.rpc.reset();
    server.logic.reset();
  }

  std::unique_ptr<ServerClient> client(rpc::ElementType type = rpc::NONE) const {
    return std::make_unique<ServerClient>(catalog_, ServerClientOptions{.addresses = addresses_,
                                                                        .security = {},
                                                                        .call_timeout = std::chrono::seconds(5),
                                                                        .timeout = std::chrono::seconds(30),
                                                                        .element_type = type});
  }

 private:
  struct Server {
    std::shared_ptr<ParameterServer> logic;
    std::unique_ptr<RpcServer> rpc;
  };
  struct Interference {
    std::mutex mutex;
    Before call;
    Before get() {
      const std::lock_guard lock(mutex);
      return call;
    }
  };
  std::shared_ptr<const Catalog> catalog_;
  std::shared_ptr<Interference> before_ = std::make_shared<Interference>();
  std::vector<std::string> addresses_;
  std::vector<Server> servers_;
};

}  // namespace cohort::testing
