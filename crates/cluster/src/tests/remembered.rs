//! Tests of the ConfigMap in which Nodes are remembered: it blocks nothing, and is followed.

use rules::{
    capi::{InfrastructureRef, ObjectKey, SpecDigest},
    remembered::{Bootstrap, Key, Templates},
};
use serde_json::{Value, json};

use super::{World, fake::*, scalable};
use service::listen::CheckState;

const GROUP: &str = "infrastructure.cluster.x-k8s.io";
const CHECK: &str = "remembered/team-a/remembered-nodes";

/// Returns an API with a group that only a remembered Node scales from zero.
fn from_zero() -> FakeApi {
    let api = FakeApi::with_capi();
    api.serve_group(GROUP, &["v1beta1"]);
    api.install(GROUP, "CloudMachineTemplate", "cloudmachinetemplates");
    let reference = json!({"apiGroup": GROUP, "kind": "CloudMachineTemplate", "name": "t"});
    let spec = json!({"replicas": 0, "template": {"spec": {"infrastructureRef": reference}}});
    api.put("machinedeployments", "workers", &scalable(&json!({ "spec": spec })));
    api.put("cloudmachinetemplates", "t", &json!({}));
    api
}

/// Returns a ConfigMap with an entry for that group.
fn config_map() -> Value {
    let infrastructure =
        InfrastructureRef { group: GROUP.into(), kind: "CloudMachineTemplate".into(), name: "t".into() };
    let templates = Templates::new(&NAMESPACE.into(), (&infrastructure, SpecDigest::default()), Bootstrap::None);
    let amounts = json!({"cpu": "4", "memory": "8Gi"});
    let entry = json!({
        "node": "a", "group": WORKERS, "seen": "2026-01-01T00:00:00Z", "capacity": amounts, "allocatable": amounts,
    });
    json!({"data": {Key::new(&templates, "amd64").unwrap().to_string(): entry.to_string()}})
}

fn world(api: &FakeApi) -> World {
    World::remembering(api, ObjectKey::new(NAMESPACE, "remembered-nodes"))
}

#[tokio::test(start_paused = true)]
async fn the_start_waits_for_what_is_remembered_and_follows_it() {
    let api = from_zero();
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
    let api = from_zero();
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
