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
    chance::Chance,
    network::Port,
};

/// The name of each ConfigMap.
const NAME: &str = "remembered-nodes";
/// More than a ConfigMap may hold together with entries.
const MUCH: usize = 690 << 10;

/// Returns the empty ConfigMap of a namespace.
pub(crate) fn config_map(namespace: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": namespace}})
}

/// Returns the ConfigMaps of these namespaces.
pub(crate) fn keys(namespaces: &[&str]) -> Vec<ObjectKey> {
    namespaces.iter().map(|namespace| ObjectKey::new(*namespace, NAME)).collect()
}

/// Takes the capacity off a group, since what an annotation states is never looked up.
pub(crate) fn without_capacity(object: &mut Value) {
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        annotations.retain(|key, _| !key.ends_with("kubernetes.io/cpu") && !key.ends_with("kubernetes.io/memory"));
    }
}

/// Runs until it is quiet.
pub(crate) async fn run(port: Port, seed: u64, namespaces: Vec<&'static str>, script: Script) {
    let chance = Chance::new(seed);
    for ordinal in 0.. {
        let mut draw = chance.of("memory act", 0, ordinal);
        sleep(Duration::from_secs(draw.u64(1..900))).await;
        if script.is_quiet() {
            return;
        }
        if !script.has("memory", ordinal) {
            continue;
        }
        let namespace = namespaces[draw.usize(0..namespaces.len())];
        match act(&port, namespace, &mut draw).await {
            Ok(()) => port.note(format!("somebody spoils what is remembered in {namespace}")),
            Err(error) => port.note(format!("somebody: {error:#}")),
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
