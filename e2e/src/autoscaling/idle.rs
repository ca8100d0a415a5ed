//! How the driver finds Nodes that nobody needs, and what it asks before and while they go.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Node as CoreNode;
use serde_json::{Value, json};

use super::{
    driver::{Driver, Look, asked},
    pattern::{QUESTIONS_ABOUT_GOING, QUESTIONS_ABOUT_USE},
    pods::{TO_BE_DELETED, is_leaving, is_on, is_ready},
};
use crate::proto::NodeGroup;

/// No Node goes for so long after one was asked for.
const COOLDOWN: Duration = Duration::from_secs(1);

/// A Node that has been idle.
struct Idle<'a> {
    group: &'a NodeGroup,
    node: &'a CoreNode,
    since: Instant,
    unneeded: Duration,
}

impl Driver {
    /// Deletes Nodes that have been idle for as long as their options say, one by one and all at once, as far as the minimum allows.
    pub(super) async fn scale_down(&mut self, look: &Look) -> Result<()> {
        let sizes = self.sizes(&look.groups).await?;
        let mut candidates = Vec::new();
        for group in look.groups.iter().filter(|group| sizes[&group.id] > group.min_size) {
            let nodes = look.nodes_of(&group.id).iter().filter(|node| is_ready(node) && !is_leaving(node));
            candidates.extend(nodes.map(|node| (group, node)));
        }
        let idle = self.find_idle(look, &candidates).await?;
        self.memory.idle = idle.iter().map(|idle| (name(idle.node), idle.since)).collect();
        let cools_down = self.memory.increased.is_some_and(|since| since.elapsed() < COOLDOWN);
        if candidates.is_empty() || cools_down {
            return Ok(());
        }
        let sizes = self.sizes(&look.groups).await?;
        for idle in &idle {
            self.options(&idle.group.id, self.pattern.questions_about_idle().1).await?;
        }
        let going = long_enough(look, &sizes, &idle);
        if going.is_empty() { Ok(()) } else { self.delete_all(look, &going).await }
    }

    /// Of those that may go, the Nodes that no pod runs on.
    async fn find_idle<'a>(&self, look: &Look, candidates: &[(&'a NodeGroup, &'a CoreNode)]) -> Result<Vec<Idle<'a>>> {
        let mut idle = Vec::new();
        for &(group, node) in candidates {
            let Some(options) = self.options(&group.id, QUESTIONS_ABOUT_USE).await? else { continue };
            let busy = look.pods.iter().any(|pod| is_on(pod, node));
            if !busy && options.threshold > 0.0 {
                let since = self.memory.idle.get(&name(node)).copied().unwrap_or_else(Instant::now);
                idle.push(Idle { group, node, since, unneeded: options.unneeded });
            }
        }
        for idle in &idle {
            self.options(&idle.group.id, self.pattern.questions_about_idle().0).await?;
        }
        Ok(idle)
    }

    /// Sizes are asked for while the deletes are under way: those may or may not show them.
    async fn delete_all(&mut self, look: &Look, going: &[&Idle<'_>]) -> Result<()> {
        let (of_group, of_node) = QUESTIONS_ABOUT_GOING;
        let mut groups: HashMap<&str, usize> = HashMap::new();
        for idle in going {
            *groups.entry(&idle.group.id).or_default() += 1;
        }
        for (group, nodes) in groups {
            self.options(group, of_group + nodes * of_node).await?;
        }
        let driver = &*self;
        let deletes = going.iter().map(async |idle| {
            let (name, group) = (name(idle.node), &idle.group.id);
            let deleted = driver.delete_tainted(group, idle.node, &name).await;
            let outcome = deleted.map_or_else(|error| format!("{error:#}"), |()| "done".to_owned());
            format!("{name} of {group}: {outcome}")
        });
        let (said, sizes) = tokio::join!(join_all(deletes), driver.sizes(&look.groups));
        sizes?;
        for said in said {
            self.note("deleted", &said);
        }
        if self.pattern.asks_for_templates_of_deleted() {
            for idle in going {
                self.template(&idle.group.id).await?;
            }
        }
        self.learn_gpus().await
    }

    async fn delete_tainted(&self, group: &str, node: &CoreNode, name: &str) -> Result<()> {
        self.taint(name, true).await?;
        let deleted = self.caller.delete(group, &[asked(node)]).await;
        if deleted.is_err() {
            self.taint(name, false).await?;
        }
        deleted.context("DeleteNodes")
    }

    async fn taint(&self, node: &str, on: bool) -> Result<()> {
        let object = self.workload.get("Node", node).await?;
        let mut taints: Vec<Value> = object.data["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.retain(|taint| taint["key"] != TO_BE_DELETED);
        if on {
            taints.push(json!({ "key": TO_BE_DELETED, "effect": "NoSchedule" }));
        }
        let version = object.metadata.resource_version;
        let patch = json!({ "metadata": { "resourceVersion": version }, "spec": { "taints": taints } });
        self.workload.patch("Node", node, patch).await
    }
}

/// Those that have been idle for long enough, as far as the minimum allows.
fn long_enough<'a, 'b>(look: &Look, sizes: &BTreeMap<String, i32>, idle: &'b [Idle<'a>]) -> Vec<&'b Idle<'a>> {
    let mut spare: BTreeMap<&str, i32> = BTreeMap::new();
    let mut going = Vec::new();
    for idle in idle.iter().filter(|idle| idle.since.elapsed() >= idle.unneeded) {
        let group = idle.group;
        let spare = spare.entry(&group.id).or_insert_with(|| {
            // Those on their way out are no part of the size any more once the provider has been told.
            let staying = look.nodes_of(&group.id).iter().filter(|node| !is_leaving(node)).count();
            sizes[&group.id].min(i32::try_from(staying).unwrap_or(i32::MAX)) - group.min_size
        });
        if *spare > 0 {
            *spare -= 1;
            going.push(idle);
        }
    }
    going
}

fn name(node: &CoreNode) -> String {
    node.metadata.name.clone().unwrap_or_default()
}
