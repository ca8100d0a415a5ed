//! The owners of a fleet's Clusters, who opt them out and in again, now and then right when a copy writes for one, and
//! delete some with all groups, to create them anew under the same names.

use std::{future::Future, sync::Arc, time::Duration};

use anyhow::Result;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, GroupVersionKind, Patch, PostParams},
    core::Status,
};
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use crate::{
    actor::{self, Script, tolerate},
    network::Port,
    plan::Chance,
    setup::{self, Group, Place, SERVED},
};

/// The interval at which an owner who waits looks around.
const LOOK: Duration = Duration::from_secs(1);
/// The longest wait for a copy's write.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Owner {
    port: Port,
    place: Place,
    groups: Vec<Group>,
    /// Notified when a copy sends a write about one of the groups.
    written: Arc<Notify>,
    script: Script,
}

impl Owner {
    pub(crate) fn new(port: Port, (place, groups): (Place, Vec<Group>), written: Arc<Notify>, script: Script) -> Self {
        Self { port, place, groups, written, script }
    }

    /// Runs until it is quiet, and makes sure then that the Cluster is served.
    pub(crate) async fn run(self, seed: u64) {
        let chance = Chance::new(seed);
        let mean = [0, 200, 500][chance.of("owner", 0, 0).usize(0..3)];
        for ordinal in 0.. {
            let mut draw = chance.of("owner's act", 0, ordinal);
            self.pause(if mean == 0 { u64::MAX } else { draw.u64(1..2 * mean) }).await;
            if self.script.is_quiet() {
                break;
            }
            if !self.script.has("owner", ordinal) {
                continue;
            }
            if draw.u32(0..4) == 0 {
                self.renew(draw.u64(0..60)).await;
            } else {
                if draw.bool() {
                    // It is as good without.
                    let _ = timeout(PATIENCE, self.written.notified()).await;
                    sleep(Duration::from_millis(draw.u64(0..40))).await;
                }
                self.report("opts out", &self.set_served(false).await);
                let seconds = if draw.bool() { draw.u64(1..20) } else { draw.u64(20..400) };
                self.pause(seconds).await;
                self.until_done("opts in", || self.set_served(true)).await;
            }
        }
        self.until_done("is served", || self.make()).await;
        self.until_done("opts in", || self.set_served(true)).await;
    }

    /// Sleeps, and ends early once it is quiet.
    async fn pause(&self, seconds: u64) {
        let mut left = seconds;
        while left > 0 && !self.script.is_quiet() {
            sleep(LOOK).await;
            left -= 1;
        }
    }

    fn report(&self, what: &str, done: &Result<()>) -> bool {
        let Place { namespace, name } = self.place;
        match done {
            Ok(()) => self.port.note(format!("{namespace}/{name} {what}")),
            Err(error) => self.port.note(format!("{namespace}/{name} {what}: {error:#}")),
        }
        done.is_ok()
    }

    async fn until_done<F: Future<Output = Result<()>>>(&self, what: &str, act: impl Fn() -> F) {
        while !self.report(what, &act().await) {
            sleep(LOOK).await;
        }
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", kind);
        actor::objects(&self.port, &kind, Some(self.place.namespace))
    }

    async fn set_served(&self, is_served: bool) -> Result<()> {
        let value = if is_served { json!(SERVED.1) } else { Value::Null };
        let patch = Patch::Merge(json!({"metadata": {"labels": {SERVED.0: value}}}));
        self.api("Cluster").patch(self.place.name, &actor::by_kubectl(), &patch).await?;
        Ok(())
    }

    /// Deletes the Cluster with its groups, and creates all of it under the same names.
    async fn renew(&self, seconds: u64) {
        self.until_done("is deleted", || self.delete()).await;
        self.pause(seconds).await;
        self.until_done("is created anew", || self.make()).await;
    }

    async fn delete(&self) -> Result<()> {
        for group in &self.groups {
            let deleted = self.api(group.kind).delete(&group.name, &DeleteParams::default()).await;
            tolerate(deleted, Status::is_not_found)?;
        }
        tolerate(self.api("Cluster").delete(self.place.name, &DeleteParams::default()).await, Status::is_not_found)
    }

    /// Creates what isn't there. An old object may still be being deleted.
    async fn make(&self) -> Result<()> {
        for object in setup::served(self.place, &self.groups) {
            let object: DynamicObject = serde_json::from_value(object)?;
            let (kind, name) = (object.types.clone().unwrap_or_default().kind, object.metadata.name.clone());
            let api = self.api(&kind);
            tolerate(api.create(&PostParams::default(), &object).await, Status::is_already_exists)?;
            let there = api.get(&name.unwrap_or_default()).await?;
            anyhow::ensure!(there.metadata.deletion_timestamp.is_none(), "its {kind} is still being deleted");
        }
        Ok(())
    }
}
