#include "wings/etcd/cluster/etcd_keys.h"

#include "wings/etcd/rpc/etcd_client.h"

namespace cohort {

EtcdTransaction& EtcdTransaction::if_created_at(const std::string& key, int64_t revision) {
  etcd::Compare& compare = *request_.add_compare();
  compare.set_target(etcd::Compare::CREATE);
  compare.set_key(key);
  compare.set_create_revision(revision);
  return *this;
}

EtcdTransaction& EtcdTransaction::if_written_at(const std::string& key, int64_t revision) {
  etcd::Compare& compare = *request_.add_compare();
  compare.set_target(etcd::Compare::MOD);
  compare.set_key(key);
  compare.set_mod_revision(revision);
  return *this;
}

EtcdTransaction& EtcdTransaction::put(const std::string& key, const std::string& value, int64_t lease) {
  etcd::PutRequest& put = *request_.add_success()->mutable_request_put();
  put.set_key(key);
  put.set_value(value);
  put.set_lease(lease);
  return *this;
}

EtcdTransaction& EtcdTransaction::remove(const std::string& key) {
  request_.add_success()->mutable_request_delete_range()->set_key(key);
  return *this;
}

EtcdTransaction& EtcdTransaction::remove_all(const std::string& prefix) {
  etcd::DeleteRangeRequest& range = *request_.add_success()->mutable_request_delete_range();
  range.set_key(prefix);
  range.set_range_end(end_of_prefix(prefix));
  return *this;
}

EtcdTransaction& EtcdTransaction::else_read(const std::string& key) {
  request_.add_failure()->mutable_request_range()->set_key(key);
  return *this;
}

}  // namespace cohort
