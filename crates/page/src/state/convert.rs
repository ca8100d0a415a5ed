//! Converts values of the index to types of the schema, one group at a time. This module must implement no rule.

use std::{collections::BTreeMap, time::Instant};

use rules::{Excluded, NodeTemplate, Overrides, RolloutCause, Sourced, SourcedMap, capacity, writing::Ongoing};
use shared_informer::Status;

use super::{
    CallsState, ClusterState, Group, HistoryEntry, InformerState, LeftOutObject, Rollout, SourcedTaint, SourcedText,
    Template,
};
use index::{GroupSnapshot, Served};
use scale::History;
use service::{Calls, Refreshed};

const ARCH: &str = "kubernetes.io/arch";
const OS: &str = "kubernetes.io/os";

/// Converts a group, with its instances if the snapshot has them.
///
/// `has_nodes` is true if the Nodes of the workload cluster are in sync.
pub(super) fn group(snapshot: &GroupSnapshot, served: &Served, history: &History, has_nodes: bool) -> Group {
    let definition = &served.definition;
    Group {
        template: definition.template.as_ref().map(template),
        options: options(&served.options),
        notes: snapshot.note().iter().chain(&definition.notes).cloned().collect(),
        instances: snapshot.instances(has_nodes).map(Iterator::collect),
        ..row(snapshot, served, history)
    }
}

/// Converts a group without the fields that only its own page shows: template, options, notes and instances.
pub(super) fn row(snapshot: &GroupSnapshot, served: &Served, history: &History) -> Group {
    let definition = &served.definition;
    let object = snapshot.object.as_deref();
    Group {
        id: snapshot.id.to_string(),
        kind: snapshot.id.kind.to_string(),
        namespace: snapshot.id.key.namespace.to_string(),
        name: snapshot.id.key.name.to_string(),
        cluster: object.map(|object| object.cluster_name.to_string()).unwrap_or_default(),
        min_size: definition.bounds.min,
        max_size: definition.bounds.max,
        size: snapshot.size,
        spec_replicas: object.and_then(|object| object.replicas),
        written: snapshot.written,
        pinned: snapshot.pinned,
        rolling_out: snapshot.rollout.as_ref().is_some_and(|it| it.cause == RolloutCause::MachineSets),
        rollout: snapshot.rollout.as_ref().map(|it| rollout(it, definition.ignores_rollouts)),
        counts: snapshot.counts,
        problems: definition.problems.clone(),
        history: history.of(&snapshot.id),
        ..Group::default()
    }
}

/// Converts an object that isn't a node group, with its last writes; `None` for one that is.
pub(super) fn left_out(snapshot: &GroupSnapshot, history: Vec<HistoryEntry>) -> Option<LeftOutObject> {
    let Excluded { reason, problems } = snapshot.standing.as_ref().err()?;
    let object = snapshot.object.as_deref();
    Some(LeftOutObject {
        id: snapshot.id.to_string(),
        kind: snapshot.id.kind.to_string(),
        namespace: snapshot.id.key.namespace.to_string(),
        name: snapshot.id.key.name.to_string(),
        cluster: object.map(|object| object.cluster_name.to_string()).unwrap_or_default(),
        reason: reason.as_str().to_owned(),
        message: reason.to_string(),
        invalid: reason.is_error() || !problems.is_empty(),
        pinned: snapshot.pinned,
        problems: problems.clone(),
        notes: Vec::new(),
        history,
    })
}

/// Converts the calls of Cluster Autoscaler.
pub(super) fn calls(calls: &Calls, now: Instant) -> CallsState {
    match calls.last_refresh() {
        None => CallsState::default(),
        Some(Refreshed { at, refused }) => CallsState {
            last_refresh_ago: Some(now.saturating_duration_since(at).as_secs()),
            last_refresh_refused: refused,
        },
    }
}

fn template(template: &NodeTemplate) -> Template {
    let label = |key| template.labels.get(key).map(|label| label.value.clone()).unwrap_or_default();
    Template {
        capacity: texts(&template.capacity),
        allocatable: template
            .capacity
            .keys()
            .filter_map(|resource| Some((resource.clone(), template.allocatable(resource)?.to_string())))
            .collect(),
        overhead: texts(&template.overhead),
        gpus: capacity::gpus(&template.capacity).map(|(name, count)| (name.to_owned(), count.to_string())).collect(),
        arch: label(ARCH),
        os: label(OS),
        labels: texts(&template.labels),
        taints: template
            .taints
            .iter()
            .map(|Sourced { value: taint, source, .. }| SourcedTaint {
                key: taint.key.clone(),
                value: taint.value.clone(),
                effect: taint.effect.to_string(),
                source: source.as_str().to_owned(),
            })
            .collect(),
        declared_features: template.declared_features.iter().map(text).collect(),
    }
}

fn texts<T: ToString>(values: &SourcedMap<T>) -> BTreeMap<String, SourcedText> {
    values.iter().map(|(key, it)| (key.clone(), text(it))).collect()
}

fn text<T: ToString>(it: &Sourced<T>) -> SourcedText {
    SourcedText {
        value: it.value.to_string(),
        source: it.source.as_str().to_owned(),
        detail: Some(it.source.to_string()),
    }
}

/// Returns the overridden options, by their annotations without the prefix.
pub(crate) fn options(options: &Overrides) -> BTreeMap<String, String> {
    let Overrides {
        scale_down_utilization_threshold,
        scale_down_gpu_utilization_threshold,
        scale_down_unneeded_time,
        scale_down_unready_time,
        max_node_provision_time,
        max_node_startup_time,
        ignore_daemon_sets_utilization,
    } = options;
    let text = |name: &str, value: Option<String>| Some((name.to_owned(), value?));
    [
        text("scaledownutilizationthreshold", scale_down_utilization_threshold.map(|it| it.to_string())),
        text("scaledowngpuutilizationthreshold", scale_down_gpu_utilization_threshold.map(|it| it.to_string())),
        text("scaledownunneededtime", scale_down_unneeded_time.map(|it| it.to_string())),
        text("scaledownunreadytime", scale_down_unready_time.map(|it| it.to_string())),
        text("maxnodeprovisiontime", max_node_provision_time.map(|it| it.to_string())),
        text("maxnodestartuptime", max_node_startup_time.map(|it| it.to_string())),
        text("ignoredaemonsetsutilization", ignore_daemon_sets_utilization.map(|it| it.to_string())),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn rollout(ongoing: &Ongoing, ignored: bool) -> Rollout {
    Rollout {
        cause: ongoing.cause.as_str().to_owned(),
        message: ongoing.cause.to_string(),
        since: ongoing.since,
        ignored,
    }
}

/// Converts the informers' statuses to clusters, sorted by cluster and resource. A workload cluster whose Nodes aren't
/// read isn't among them.
pub(super) fn clusters(statuses: Vec<(&'static str, Status)>, reads_nodes: bool, now: Instant) -> Vec<ClusterState> {
    let expected = [Some("management"), reads_nodes.then_some("workload")];
    let mut clusters: BTreeMap<_, Vec<_>> = expected.into_iter().flatten().map(|name| (name, Vec::new())).collect();
    for (cluster, status) in statuses {
        clusters.entry(cluster).or_default().push(informer(status, now));
    }
    clusters
        .into_iter()
        .map(|(name, mut informers)| {
            informers.sort_by(|a, b| (&a.resource, &a.namespaces).cmp(&(&b.resource, &b.namespaces)));
            ClusterState { name: name.to_owned(), informers }
        })
        .collect()
}

pub(super) fn informer(status: Status, now: Instant) -> InformerState {
    let ago = |then: Option<Instant>| then.map(|then| now.saturating_duration_since(then).as_secs());
    InformerState {
        resource: status.resource,
        namespaces: status.namespaces,
        synced: status.synced,
        reason: status.reason,
        broken_for: ago(status.broken_since),
        last_error: status.last_error,
        objects: status.objects as u64,
        undecodable: status.undecodable as u64,
        last_event_ago: ago(status.last_event),
        last_list_ago: ago(status.last_list),
        watch_errors: status.watch_errors,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_cluster_that_is_not_connected_is_shown_unless_it_is_left_out_on_purpose() {
        let names = |reads_nodes: bool| {
            let clusters = clusters(Vec::new(), reads_nodes, Instant::now());
            clusters.into_iter().map(|cluster| cluster.name).collect::<Vec<_>>()
        };
        assert_eq!(
            (names(true), names(false)),
            (vec!["management".to_owned(), "workload".to_owned()], vec!["management".to_owned()])
        );
    }
}
