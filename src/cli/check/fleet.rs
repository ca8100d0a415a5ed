//! The check that a fleet serves a Cluster: its labels have to match the selector.

use std::time::Instant;

use kube::{
    Api,
    api::{DynamicObject, ListParams},
};
use rules::LabelSelector;
use rules::capi::ObjectKey;

use super::{
    clusters::within,
    report::{CheckId, Findings},
};
use connect::discovery::CoreResources;
use connect::{Clients, cause};

/// Compares the labels of a Cluster with the selector of its fleet. A Cluster that isn't there is reported with the
/// scope.
pub(super) async fn judge(
    findings: &mut Findings,
    (management, core): (&Clients, &CoreResources),
    (cluster, selector): (&ObjectKey, &LabelSelector),
    until: Instant,
) {
    let (check, subject) = (CheckId::Scope, format!("Cluster {cluster}"));
    let Some(resource) = &core.cluster else {
        findings.skip(check, format!("{subject}: its labels, since no Clusters are served"));
        return;
    };
    // The fleet lists Clusters, and may not get one.
    let api: Api<DynamicObject> = Api::namespaced_with(management.writes.clone(), &cluster.namespace, resource);
    let named = ListParams::default().fields(&format!("metadata.name={}", cluster.name));
    let found = match within(until, api.list(&named)).await {
        Ok(Ok(found)) => found.items.into_iter().next(),
        Ok(Err(error)) => return findings.skip(check, format!("{subject}: its labels: {}", cause(&error))),
        Err(why) => return findings.skip(check, format!("{subject}: its labels: {why}")),
    };
    match found {
        None => {}
        Some(found) if selector.selects(&found.metadata.labels.clone().unwrap_or_default()) => {
            findings.ok(check, subject, format!("its labels match --fleet-selector {selector}"));
        }
        Some(_) => findings.error(
            check,
            subject,
            format!("its labels don't match --fleet-selector {selector}: its autoscaler is denied every call"),
            "label the Cluster",
        ),
    }
}
