//! Tests of the ConfigMap in which Nodes are remembered: it blocks nothing, and is followed.

use rstest::rstest;
use rules::{
    capi::{InfrastructureRef, ObjectKey, SpecDigest},
    remembered::{Bootstrap, Key, Templates},
};
use serde_json::{Value, json};

use super::{GROUP, World, fake::*, from_zero, naming};
use service::listen::CheckState;

const KIND: &str = "CloudMachineTemplate";
const CHECK: &str = "remembered/team-a/remembered-nodes";

/// Returns an API with a group that only a remembered Node scales from zero.
fn api() -> FakeApi {
    let api = FakeApi::with_capi();
    api.serve_group(GROUP, &["v1beta1"]);
    api.install(GROUP, KIND, "cloudmachinetemplates");
    api.put("machinedeployments", "workers", &from_zero(KIND));
    api.put("cloudmachinetemplates", "t", &json!({}));
    api
}

/// Returns a ConfigMap with an entry for that group.
fn config_map() -> Value {
    let infrastructure = InfrastructureRef { group: GROUP.into(), kind: KIND.into(), name: "t".into() };
    let templates = Templates::new(&NAMESPACE.into(), (&infrastructure, SpecDigest::default()), Bootstrap::None);
    let amounts = json!({"cpu": "4", "memory": "8Gi"});
    let entry = json!({
        "node": "a", "group": WORKERS, "seen": "2026-01-01T00:00:00Z", "capacity": amounts, "allocatable": amounts,
    });
    json!({"data": {Key::new(&templates, "amd64").unwrap().to_string(): entry.to_string()}})
}

fn world(api: &FakeApi) -> World {
    World::with(api, Setup { remember: vec![ObjectKey::new(NAMESPACE, "remembered-nodes")], ..Setup::default() })
}

#[tokio::test(start_paused = true)]
async fn the_start_waits_for_what_is_remembered_and_follows_it() {
    let api = api();
    api.put("configmaps", "remembered-nodes", &config_map());
    api.hold("configmaps");
    let world = world(&api);
    world.until("templates that are awaited", |world| world.problem().contains("templates")).await;
    api.release("configmaps");
    world.until_ready().await;
    assert_eq!(world.groups(), [WORKERS]);
    assert_eq!(world.check(CHECK), None);
    api.put("configmaps", "remembered-nodes", &json!({"data": {}}));
    world.until_groups(&[]).await;
    api.put("configmaps", "another", &config_map());
    api.put("configmaps", "remembered-nodes", &config_map());
    world.until_groups(&[WORKERS]).await;
    world.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn without_the_right_or_the_config_map_all_else_works() {
    let api = api();
    api.refuse("configmaps", 403, "User \"provider\" cannot list resource");
    let world = world(&api);
    world.until_ready().await;
    assert!(world.is_ready() && world.groups().is_empty());
    let Some((CheckState::Informational, why)) = world.check(CHECK) else { panic!("{:?}", world.check(CHECK)) };
    assert!(why.contains("forbidden"), "{why}");
    api.allow("configmaps");
    let says_missing =
        |world: &World| world.check(CHECK).is_some_and(|(_, why)| why.contains("there is no such ConfigMap"));
    world.until("a missing ConfigMap", says_missing).await;
    api.put("configmaps", "remembered-nodes", &config_map());
    world.until_groups(&[WORKERS]).await;
    api.delete("configmaps", "remembered-nodes");
    world.until("a missing ConfigMap", says_missing).await;
    assert_eq!(world.groups(), [WORKERS], "what was read is kept");
    world.shutdown().await;
}

/// Adds a Node of a group that has been ready for so long that no further devices are expected.
fn put_settled_node(api: &FakeApi, group: &str, name: &str, memory: &str) {
    let owned = |kind: &str, name: &str| json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": name, "controller": true}]);
    let reference = json!({"apiGroup": GROUP, "kind": KIND, "name": "t"});
    let set = json!({
        "metadata": {"ownerReferences": owned("MachineDeployment", group)},
        "spec": {"template": {"spec": {"infrastructureRef": reference}}},
    });
    api.put("machinesets", group, &set);
    let machine = json!({
        "metadata": {"ownerReferences": owned("MachineSet", group)},
        "spec": {"providerID": format!("cloud:///zone/{name}")}, "status": {"phase": "Running", "nodeRef": {"name": name}},
    });
    api.put("machines", name, &machine);
    let amounts = json!({"cpu": "4", "memory": memory});
    let ready = json!([{
        "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z",
        "lastHeartbeatTime": "2026-01-01T01:00:00Z",
    }]);
    let node = json!({
        "spec": {"providerID": format!("cloud:///zone/{name}")},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": ready},
    });
    api.put("nodes", name, &node);
}

/// Answers requests of a path with a code and this object.
fn answer(api: &FakeApi, path: &str, code: u16, object: &Value) {
    let body = object.to_string();
    api.answer_by(path, move |_| {
        Some(http::Response::builder().status(code).body(axum::body::Body::from(body.clone())).unwrap())
    });
}

fn entry(world: &World) -> String {
    let key = ObjectKey::new(NAMESPACE, "remembered-nodes");
    let write = world.fleet.memory().and_then(|memory| memory.write(&key, &std::collections::BTreeSet::new()));
    write.into_iter().flat_map(|write| write.data.into_values()).flatten().collect()
}

/// The path of the CSINode of the Node `a`.
const CSI_NODE: &str = "/apis/storage.k8s.io/v1/csinodes/a";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// Returns an API with a settled Node, its CSINode and its ResourceSlice.
fn api_with_drivers() -> FakeApi {
    let api = api();
    api.put("configmaps", "remembered-nodes", &json!({}));
    put_settled_node(&api, "workers", "a", "8Gi");
    let drivers =
        json!([{"name": "ebs.csi.aws.com", "nodeID": "i-0", "topologyKeys": [], "allocatable": {"count": 25}}]);
    answer(&api, CSI_NODE, 200, &json!({"metadata": {"name": "a"}, "spec": {"drivers": drivers}}));
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"},
        "spec": {"driver": "gpu.nvidia.com", "devices": [{"name": "gpu-0"}]},
    });
    let list =
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList", "metadata": {}, "items": [slice]});
    let list = list.to_string();
    api.answer_by(SLICES, move |uri| {
        let is_of_node = uri.query().is_some_and(|query| query.contains("fieldSelector=spec.nodeName%3Da"));
        is_of_node.then(|| http::Response::new(axum::body::Body::from(list.clone())))
    });
    api
}

const VOLUMES: &str = r#""ebs.csi.aws.com":25"#;
const DEVICES: &str = r#""gpu.nvidia.com":{"count":1"#;

/// Takes the right to one of both away.
#[rstest]
#[case::to_none(None, true, true)]
#[case::to_volumes(Some(CSI_NODE), false, true)]
#[case::to_devices(Some(SLICES), true, false)]
#[tokio::test(start_paused = true)]
async fn the_volumes_and_devices_of_a_settled_node_are_remembered(
    #[case] forbidden: Option<&str>,
    #[case] volumes: bool,
    #[case] devices: bool,
) {
    let api = api_with_drivers();
    if let Some(path) = forbidden {
        answer(&api, path, 403, &forbidding());
    }
    let world = world(&api);
    world.until("offers", |world| entry(world).contains("offers")).await;
    let found = entry(&world);
    assert_eq!((found.contains(VOLUMES), found.contains(DEVICES)), (volumes, devices), "{found}");
    world.shutdown().await;
}

fn forbidding() -> Value {
    json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": "no", "code": 403})
}

#[tokio::test(start_paused = true)]
async fn without_the_rights_volumes_and_devices_are_asked_for_once_an_hour() {
    let api = api();
    api.put("configmaps", "remembered-nodes", &json!({}));
    put_settled_node(&api, "workers", "a", "8Gi");
    answer(&api, CSI_NODE, 403, &forbidding());
    answer(&api, SLICES, 403, &forbidding());
    let world = world(&api);
    world.until("an entry", |world| entry(world).contains("8Gi")).await;
    world.until("both requests", |_| api.was_asked(CSI_NODE) && api.was_asked(SLICES)).await;
    let add = async |group: &str, node: &str, memory: &str| {
        api.put("machinedeployments", group, &naming(GROUP, KIND, &json!({})));
        put_settled_node(&api, group, node, memory);
        world.until("another group's Node", |world| entry(world).contains(memory)).await;
        // The clock goes on only when no task has anything to do.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    };
    add("others", "b", "7Gi").await;
    assert_eq!((api.asks(CSI_NODE), api.asks(SLICES)), (1, 1));
    assert!(!api.was_asked("/apis/storage.k8s.io/v1/csinodes/b"));
    assert!(world.is_ready() && !entry(&world).contains("offers"));
    tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
    add("more", "c", "6Gi").await;
    assert!(api.was_asked("/apis/storage.k8s.io/v1/csinodes/c"));
    assert_eq!(api.asks(SLICES), 2);
    world.shutdown().await;
}
