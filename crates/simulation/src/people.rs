//! People and other programs that write the same objects: they delete Machines, write sizes, change bounds and roll
//! groups out.

use std::time::Duration;

use anyhow::Result;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    actor::{self, Script},
    entropy::{self, Nanos},
    network::Port,
    plan::Chance,
    setup::{Group, LABELS, MAX_SIZE, MIN_SIZE, POOL, UNNEEDED},
};

/// Rolls out the group that is about to have a shortage.
pub(crate) async fn break_template(port: Port, group: Group, from: Nanos) {
    sleep(Duration::from_nanos(from.saturating_sub(entropy::now()))).await;
    match roll_out(&port, &group, "broken").await {
        Ok(()) => port.note(format!("somebody rolls {} out to a broken template", group.id())),
        Err(error) => port.note(format!("somebody: {error:#}")),
    }
}

async fn roll_out(port: &Port, group: &Group, label: &str) -> Result<()> {
    let patch = json!({"spec": {"template": {"metadata": {"labels": {"rollout": label}}}}});
    api(port, group, group.kind).patch(&group.name, &actor::by_kubectl(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// Runs until it is quiet; some worlds have no people.
pub(crate) async fn run(port: Port, seed: u64, groups: Vec<Group>, script: Script) {
    let chance = Chance::new(seed);
    let mean = [0, 0, 600, 120][chance.of("people", 0, 0).usize(0..4)];
    if mean == 0 {
        return;
    }
    for ordinal in 0.. {
        let mut draw = chance.of("people act", 0, ordinal);
        sleep(Duration::from_secs(draw.u64(1..2 * mean))).await;
        if script.is_quiet() {
            return;
        }
        if !script.has("people", ordinal) {
            continue;
        }
        match act(&port, &groups, &mut draw, ordinal).await {
            Ok(done) => port.note(format!("somebody {done}")),
            Err(error) => port.note(format!("somebody: {error:#}")),
        }
    }
}

pub(crate) fn api(port: &Port, group: &Group, kind: &str) -> Api<DynamicObject> {
    actor::objects(port, &GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", kind), Some(group.namespace))
}

async fn act(port: &Port, groups: &[Group], draw: &mut fastrand::Rng, ordinal: u64) -> Result<String> {
    let group = &groups[draw.usize(0..groups.len())];
    let api_of_group = api(port, group, group.kind);
    let patch = async |patch: Value| api_of_group.patch(&group.name, &actor::by_kubectl(), &Patch::Merge(patch)).await;
    match draw.u32(0..11) {
        0..4 => {
            let machines = api(port, group, "Machine");
            let found = machines.list(&ListParams::default().labels(&format!("group={}", group.name))).await?.items;
            if found.is_empty() {
                return Ok("finds nothing to delete".to_owned());
            }
            let name = found[draw.usize(0..found.len())].metadata.name.clone().unwrap_or_default();
            machines.delete(&name, &DeleteParams::default()).await?;
            Ok(format!("deletes {name}"))
        }
        4..6 => {
            let size = draw.u32(0..=group.max);
            patch(json!({"spec": {"replicas": size}})).await?;
            Ok(format!("writes size {size} of {}", group.id()))
        }
        6 => {
            let (min, max) = (draw.u32(0..3), draw.u32(3..9));
            patch(json!({"metadata": {"annotations": {MIN_SIZE: min.to_string(), MAX_SIZE: max.to_string()}}})).await?;
            Ok(format!("bounds {} by {min} and {max}", group.id()))
        }
        7 => {
            let minutes = draw.u32(1..60);
            patch(json!({"metadata": {"annotations": {UNNEEDED: format!("{minutes}m")}}})).await?;
            Ok(format!("sets the unneeded time of {} to {minutes} minutes", group.id()))
        }
        8 => {
            let team = draw.u32(0..5);
            patch(json!({"metadata": {"annotations": {LABELS: format!("{POOL}={},team={team}", group.name)}}})).await?;
            Ok(format!("labels the template of {} with team {team}", group.id()))
        }
        _ if group.kind == "MachineDeployment" => {
            roll_out(port, group, &ordinal.to_string()).await?;
            Ok(format!("rolls {} out", group.id()))
        }
        _ => Ok("changes nothing".to_owned()),
    }
}
