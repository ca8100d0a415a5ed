//! The API as its clients in the same process see it.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

mod deletes;
mod lists;
mod loads;
mod writes;

fn api() -> Api {
    let api = Api::new(Clock::driven(Timestamp::UNIX_EPOCH));
    api.define(KindSpec::new("cluster.x-k8s.io", "v1beta2", "MachineSet").with_version("v1beta1").with_scale());
    api.define(KindSpec::new("cluster.x-k8s.io", "v1beta2", "Machine").with_version("v1beta1"));
    api
}

fn sets() -> Resource {
    Resource::new("cluster.x-k8s.io", "v1beta2", "machinesets")
}

fn machines() -> Resource {
    Resource::new("cluster.x-k8s.io", "v1beta2", "machines")
}

fn set(name: &str, replicas: i64) -> Value {
    json!({"metadata": {"namespace": "default", "name": name}, "spec": {"replicas": replicas}})
}

fn machine(name: &str) -> Value {
    json!({"metadata": {"namespace": "default", "name": name}, "spec": {}})
}

fn owned_by(mut object: Value, owner: &Value) -> Value {
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }]);
    object
}
