//! A tenant whose namespace comes and goes, with a Cluster and node groups of its own. A new namespace has the same
//! names as the old one, as from a pipeline. In half of the worlds the tenant leaves for good.

use std::time::Duration;

use anyhow::Result;
use connect::Policy;
use fastrand::Rng;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, GroupVersionKind, Patch, PostParams},
    core::Status,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    actor::{self, Script, tolerate},
    network::Port,
    plan::Chance,
    setup::{self, Group},
};

const NAMESPACE: &str = "team-b";
/// The longest virtual time with a namespace, or without.
const LONGEST: u64 = 700;
/// The number of ordinals reserved for the acts of one life of the tenant.
const LIFE: u64 = 16;

pub(crate) fn comes(seed: u64) -> bool {
    Chance::new(seed).of("tenant", 0, 0).u32(0..3) == 0
}

/// Runs until it is quiet; a deletion under way is completed.
pub(crate) async fn run(port: Port, seed: u64, script: Script) {
    let chance = Chance::new(seed);
    let mut draw = chance.of("tenant", 0, 1);
    let tenant = Tenant {
        namespaces: Api::all(port.client(Policy::WRITES)),
        has_cluster: draw.u32(0..3) > 0,
        groups: setup::tenants_groups(&mut draw, NAMESPACE),
        port,
        script,
    };
    let lives = if chance.of("tenant's lives", 0, 0).bool() { 1 } else { u64::MAX };
    for life in 0..lives {
        let mut draw = chance.of("tenant's life", 0, life);
        if tenant.pause(draw.u64(1..LONGEST / 2)).await {
            return;
        }
        if !tenant.script.has("tenant", life * LIFE) {
            continue;
        }
        if !tenant.come().await {
            return;
        }
        for change in 1..=draw.u64(0..6) {
            if tenant.pause(draw.u64(5..LONGEST / 4)).await {
                return;
            }
            if tenant.script.has("tenant", life * LIFE + change) {
                tenant.change(&mut draw).await;
            }
        }
        // The last namespace may stay.
        if tenant.pause(draw.u64(1..LONGEST)).await || !tenant.go().await {
            return;
        }
    }
}

struct Tenant {
    port: Port,
    namespaces: Api<Namespace>,
    has_cluster: bool,
    groups: Vec<Group>,
    script: Script,
}

impl Tenant {
    /// Sleeps. Returns true if it is quiet afterwards.
    async fn pause(&self, seconds: u64) -> bool {
        sleep(Duration::from_secs(seconds)).await;
        self.script.is_quiet()
    }

    /// Creates the namespace and its objects like `kubectl apply`, and retries failures. Returns false if it is quiet
    /// before that succeeds.
    async fn come(&self) -> bool {
        let mut objects = setup::tenants_objects(&self.groups, NAMESPACE, self.has_cluster);
        objects.reverse();
        loop {
            if self.script.is_quiet() {
                return false;
            }
            match self.make(&mut objects).await {
                Ok(()) => {
                    self.port.note("the tenant has come");
                    return true;
                }
                Err(error) => self.port.note(format!("tenant: {error:#}")),
            }
            sleep(Duration::from_secs(3)).await;
        }
    }

    /// Creates the objects from the last one on; created ones leave the list.
    async fn make(&self, objects: &mut Vec<Value>) -> Result<()> {
        actor::make_namespace(&self.namespaces, NAMESPACE).await?;
        while let Some(object) = objects.last() {
            let object: DynamicObject = serde_json::from_value(object.clone())?;
            tolerate(self.api(&object)?.create(&PostParams::default(), &object).await, Status::is_already_exists)?;
            objects.pop();
        }
        Ok(())
    }

    /// Deletes the namespace and waits until it is gone. Returns false if it is quiet before that.
    async fn go(&self) -> bool {
        self.port.note("the tenant's namespace is deleted");
        loop {
            let deleted = self.namespaces.delete(NAMESPACE, &DeleteParams::default()).await;
            match deleted {
                Err(kube::Error::Api(status)) if status.is_not_found() => return true,
                Err(error) => self.port.note(format!("tenant: {error:#}")),
                Ok(_) => {}
            }
            // A deleted namespace needs no further request to go.
            if self.pause(5).await {
                return false;
            }
        }
    }

    /// Writes a size, or deletes a group and creates it again.
    async fn change(&self, draw: &mut Rng) {
        let group = &self.groups[draw.usize(0..self.groups.len())];
        let size = draw.u32(0..=group.max);
        let done = if draw.u32(0..4) == 0 { self.renew(group).await } else { self.resize(group, size).await };
        match done {
            Ok(()) => self.port.note(format!("the tenant has changed {}", group.id())),
            Err(error) => self.port.note(format!("tenant: {error:#}")),
        }
    }

    async fn resize(&self, group: &Group, size: u32) -> Result<()> {
        let object: DynamicObject = serde_json::from_value(group.object())?;
        let patch = Patch::Merge(json!({"spec": {"replicas": size}}));
        self.api(&object)?.patch(&group.name, &actor::by_kubectl(), &patch).await?;
        Ok(())
    }

    /// Deletes a group, waits until it is gone, and creates it under the same name.
    async fn renew(&self, group: &Group) -> Result<()> {
        let object: DynamicObject = serde_json::from_value(group.object())?;
        let api = self.api(&object)?;
        self.port.note(format!("the tenant deletes {}", group.id()));
        tolerate(api.delete(&group.name, &DeleteParams::default()).await, Status::is_not_found)?;
        loop {
            match api.create(&PostParams::default(), &object).await {
                // The old object is still being deleted.
                Err(kube::Error::Api(status)) if status.is_already_exists() && !self.script.is_quiet() => {}
                created => return Ok(created.map(drop)?),
            }
            sleep(Duration::from_secs(2)).await;
        }
    }

    fn api(&self, object: &DynamicObject) -> Result<Api<DynamicObject>> {
        let kind = GroupVersionKind::try_from(object.types.clone().unwrap_or_default())?;
        Ok(actor::objects(&self.port, &kind, Some(NAMESPACE)))
    }
}
