//! Scale-down actuation: taints, drains and deletes, which outlast the loop that began them.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node as CoreNode, Pod};
use tokio::time::{Instant, sleep};

use super::{
    Caller, Settings, Workload,
    caller::grpc_node,
    driver::{Driver, Notes},
    memory::{Ended, LoopInput, NodeDeletion},
    pods::is_on,
    scale_down::Removable,
    version::OPTIONS_CALLS_BEFORE_REMOVAL,
};

/// The interval between two looks at the Pods of a Node that is being drained.
const DRAIN_PAUSE: Duration = Duration::from_secs(5);

impl Driver {
    /// Collects the deletes that have ended since the last loop.
    pub(super) async fn collect_ended(&mut self) {
        let mut any = false;
        while let Some(ended) = self.deletions.try_join_next() {
            let Ok(Ended { node, group, result }) = ended else { continue };
            self.memory.deleting.remove(&node);
            any |= result.is_ok();
            let outcome = result.map_or_else(|error| format!("{error:#}"), |()| "done".to_owned());
            self.note("deleted", &format!("{node} of {group}: {outcome}"));
        }
        if any {
            self.fetch_gpus().await;
        }
    }

    /// Taints Nodes and begins to delete them one by one and concurrently, the empty ones first.
    pub(super) async fn start_deletion(&mut self, input: &LoopInput, removals: &[Removable<'_>]) -> Result<()> {
        let (of_group, of_node) = OPTIONS_CALLS_BEFORE_REMOVAL;
        let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
        for one in removals {
            *groups.entry(&one.group.id).or_default() += 1;
        }
        for (group, nodes) in groups {
            self.options(group, of_group + nodes * of_node).await?;
        }
        for drains in [false, true] {
            let now: Vec<_> = removals.iter().filter(|one| one.drains == drains).collect();
            self.taint_all(&now.iter().map(|one| one.name).collect::<Vec<_>>()).await?;
            for one in now {
                let deletion = NodeDeletion { group: one.group.id.clone(), drains };
                self.memory.deleting.insert(one.name.to_owned(), deletion);
                let removal = Removal {
                    caller: self.caller.clone(),
                    workload: self.workload.clone(),
                    settings: self.settings,
                    notes: self.notes.clone(),
                    asks_for_template: self.pattern.asks_for_templates_of_deleted(),
                    node: one.node.clone(),
                    name: one.name.to_owned(),
                    group: one.group.id.clone(),
                    drains,
                };
                self.deletions.spawn(removal.run());
            }
        }
        self.memory.cooldown.deleted = Some(Instant::now());
        // Sizes are read while the deletes are under way, so they may or may not include them.
        self.recalculate(input).await;
        Ok(())
    }

    /// Taints all Nodes, or none.
    async fn taint_all(&mut self, names: &[&str]) -> Result<()> {
        let tainted = join_all(names.iter().map(async |name| self.workload.taint(name, true).await)).await;
        let Some(error) = tainted.iter().find_map(|tainted| tainted.as_ref().err()) else { return Ok(()) };
        let error = format!("{error:#}");
        for (name, tainted) in names.iter().zip(&tainted) {
            if tainted.is_ok()
                && let Err(error) = self.workload.taint(name, false).await
            {
                self.note("a taint stays", &format!("{error:#}"));
            }
        }
        self.memory.cooldown.failed = Some(Instant::now());
        anyhow::bail!("taints: {error}")
    }
}

/// A task that deletes one Node.
struct Removal {
    caller: Caller,
    workload: Workload,
    settings: Settings,
    notes: Notes,
    asks_for_template: bool,
    node: CoreNode,
    name: String,
    group: String,
    drains: bool,
}

impl Removal {
    /// Deletes the Node. If that fails, takes off its taint, so that Pods may use it again.
    async fn run(self) -> Ended {
        let result = self.remove().await;
        if result.is_err()
            && let Err(error) = self.workload.taint(&self.name, false).await
        {
            (self.notes)(&format!("a taint stays: {error:#}"));
        }
        Ended { node: self.name, group: self.group, result }
    }

    async fn remove(&self) -> Result<()> {
        if !self.settings.delay_after_taint.is_zero() {
            sleep(self.settings.delay_after_taint).await;
        }
        let pods = self.pods().await?;
        if self.drains {
            self.drain(&pods).await?;
        } else {
            ensure!(pods.is_empty(), "{} Pods have come", pods.len());
        }
        self.caller.delete(&self.group, &[grpc_node(&self.node)]).await.context("DeleteNodes")?;
        if self.asks_for_template {
            // Cluster Autoscaler needs the template for a metric.
            let _ = self.caller.template(&self.group).await;
        }
        Ok(())
    }

    async fn pods(&self) -> Result<Vec<Pod>> {
        let mut pods = self.workload.pods().await?;
        pods.retain(|pod| is_on(pod, &self.node));
        Ok(pods)
    }

    /// Evicts the Pods and waits until they have left.
    async fn drain(&self, pods: &[Pod]) -> Result<()> {
        let end = Instant::now() + self.settings.drain;
        for pod in pods {
            while let Err(error) = self.workload.evict(pod).await {
                ensure!(Instant::now() < end, "{error:#}");
                sleep(DRAIN_PAUSE).await;
            }
        }
        loop {
            let left = self.pods().await;
            let uids: Vec<_> = pods.iter().map(|pod| &pod.metadata.uid).collect();
            match left {
                Ok(left) if !left.iter().any(|pod| uids.contains(&&pod.metadata.uid)) => return Ok(()),
                Ok(left) => ensure!(Instant::now() < end, "{} Pods are left", left.len()),
                Err(error) => ensure!(Instant::now() < end, "{error:#}"),
            }
            sleep(DRAIN_PAUSE).await;
        }
    }
}
