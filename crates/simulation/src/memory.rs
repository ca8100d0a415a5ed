//! The ConfigMaps in which copies remember Nodes, and somebody who writes nonsense into them and changes infrastructure
//! templates in place.

use std::time::Duration;

use anyhow::Result;
use kube::api::{GroupVersionKind, Patch};
use rules::capi::ObjectKey;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    actor::{self, Script},
    network::Port,
    people,
    plan::Chance,
    setup::Group,
};

const NAME: &str = "remembered-nodes";
/// More than a ConfigMap may hold together with entries.
const MUCH: usize = 690 << 10;
/// The time in which all templates are served again once it is quiet, and controllers have seen them.
const SERVED_AGAIN: Duration = Duration::from_secs(60);

pub(crate) fn config_map(namespace: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": namespace}})
}

pub(crate) fn keys(namespaces: &[&str]) -> Vec<ObjectKey> {
    namespaces.iter().map(|namespace| ObjectKey::new(*namespace, NAME)).collect()
}

/// Runs until it is quiet. Then the groups lose their capacity annotations, so that what is remembered counts.
pub(crate) async fn run(port: Port, seed: u64, groups: Vec<Group>, script: Script) {
    let chance = Chance::new(seed);
    for ordinal in 0.. {
        let mut draw = chance.of("memory act", 0, ordinal);
        for _ in 0..draw.u64(1..900) {
            sleep(Duration::from_secs(1)).await;
            if script.is_quiet() {
                sleep(SERVED_AGAIN).await;
                return lose_capacity(&port, &groups).await;
            }
        }
        if !script.has("memory", ordinal) {
            continue;
        }
        let namespace = groups[draw.usize(0..groups.len())].namespace;
        match act(&port, namespace, &mut draw).await {
            Ok(()) => port.note(format!("somebody spoils what is remembered in {namespace}")),
            Err(error) => port.note(format!("somebody: {error:#}")),
        }
    }
}

async fn lose_capacity(port: &Port, groups: &[Group]) {
    let key = |name: &str| format!("capacity.cluster-autoscaler.kubernetes.io/{name}");
    let patch = json!({"metadata": {"annotations": {key("cpu"): null, key("memory"): null}}});
    for group in groups {
        let api = people::api(port, group, group.kind);
        if let Err(error) = api.patch(&group.name, &actor::by_kubectl(), &Patch::Merge(&patch)).await {
            port.note(format!("somebody can't take the capacity off {}: {error:#}", group.id()));
        }
    }
}

async fn act(port: &Port, namespace: &str, draw: &mut fastrand::Rng) -> Result<()> {
    let maps = actor::objects(port, &GroupVersionKind::gvk("", "v1", "ConfigMap"), Some(namespace));
    let put = async |key: String, value: String| {
        maps.patch(NAME, &actor::by_kubectl(), &Patch::Merge(json!({"data": {key: value}}))).await
    };
    let any_key = format!("{namespace}.amd64.{:064x}", draw.u128(..));
    match draw.u32(0..4) {
        0 => drop(put(any_key, "{\"node\": 1}".to_owned()).await?),
        1 => drop(put("README".to_owned(), "x".repeat(MUCH)).await?),
        2 => drop(put(any_key, format!("\"{}\"", "y".repeat(20 << 10))).await?),
        _ => {
            let kind = GroupVersionKind::gvk("infrastructure.cluster.x-k8s.io", "v1beta2", "CloudMachineTemplate");
            let cpus = [2, 4, 8][draw.usize(0..3)];
            let patch = json!({"spec": {"template": {"spec": {"image": draw.u32(0..3)}}}});
            let templates = actor::objects(port, &kind, Some(namespace));
            templates.patch(&format!("of-{cpus}-cpus"), &actor::by_kubectl(), &Patch::Merge(patch)).await?;
        }
    }
    Ok(())
}
