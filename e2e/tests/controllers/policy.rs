//! Deletes while the chart's policy restricts the deletion log to its writers.

use anyhow::{Context, Result, ensure};
use e2e::{
    controllers::{
        groups::{Group, Workers},
        machines::{HOOK, names},
        testbed::{POLL_INTERVAL, Testbed},
    },
    helm::{Helm, Values},
    users::User,
    wait::every,
};
use http::{Method, Request};
use kube::client::Body;
use serde_json::json;

use crate::deletes::{LOG, annotations_that};

const KINDS: [&str; 2] = ["ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"];

/// The program writes the log, and Cluster API's controllers copy it to the MachineSet and remove it again.
pub(crate) async fn a_named_machine_goes_while_a_policy_keeps_the_log_to_its_writers(testbed: &Testbed) -> Result<()> {
    let group = Workers::new("workers").replicas(2).create(testbed).await?;
    let policies = policies(testbed)?;
    for policy in &policies {
        testbed.objects.create(policy.clone()).await?;
    }
    let went = goes(testbed, &group).await;
    for (kind, policy) in KINDS.iter().flat_map(|kind| policies.iter().map(move |policy| (kind, policy))) {
        if policy["kind"] == **kind {
            testbed.objects.delete(kind, policy["metadata"]["name"].as_str().context("no name")?).await?;
        }
    }
    went
}

async fn goes(testbed: &Testbed, group: &Group) -> Result<()> {
    every(POLL_INTERVAL, "the policy in force", testbed.timeout(), async || {
        let status = log_written_by_somebody(testbed, group).await?;
        ensure!(status == 403, "anybody may write the log: {status}");
        Ok(())
    })
    .await?;
    let provider = testbed.serve().await?;
    provider.shows(&[&group.id]).await?;
    let machines = testbed.running(group, 2).await?;
    let (named, set) = (&machines[0], &machines[0].owner);
    testbed.objects.annotate("Machine", &named.name, json!({ HOOK: "held" })).await?;
    provider.delete_with_retries(&group.id, &[testbed.node_of(named).await?]).await?;
    let both = [("MachineDeployment", &group.name), ("MachineSet", set)];
    for (kind, name) in both {
        annotations_that(testbed, kind, name, "the log", |annotations| annotations.contains_key(LOG)).await?;
    }
    ensure!(log_written_by_somebody(testbed, group).await? == 403, "anybody may change the log");
    testbed.objects.annotate("Machine", &named.name, json!({ HOOK: null })).await?;
    for (kind, name) in both {
        annotations_that(testbed, kind, name, "no log", |annotations| !annotations.contains_key(LOG)).await?;
    }
    let left = testbed.running(group, 1).await?;
    ensure!(names(&left) == names(&machines[1..]), "{left:?} is left");
    Ok(())
}

/// Returns the policies of a release for this scenario's Cluster. Cluster API's manager acts as the administrator here.
fn policies(testbed: &Testbed) -> Result<Vec<serde_json::Value>> {
    let values = json!({
        "clusterAPIMode": "kubeconfig-kubeconfig",
        "clusterAPIKubeconfigSecret": "workload",
        "clusterAPIManagementKubeconfigSecret": "management",
        "autoDiscovery": { "clusterName": testbed.cluster },
        "admissionPolicies": { "deletionLog": {
            "enabled": true,
            "clusterAPIUsers": [User::administrator().name],
            "users": [testbed.user().name],
        } },
    });
    let mut objects = Helm::offline()?.render(&Values::new(&testbed.namespace, values))?;
    objects.retain(|object| KINDS.iter().any(|kind| object["kind"] == **kind));
    ensure!(objects.len() == 4, "{objects:?}");
    Ok(objects)
}

/// Returns the status code of another user's write of the log, in a dry run with all rights.
async fn log_written_by_somebody(testbed: &Testbed, group: &Group) -> Result<u16> {
    let path =
        format!("/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/machinedeployments/{}", testbed.namespace, group.name);
    let change = json!({ "metadata": { "annotations": { LOG: "[]" } } });
    let request = Request::builder()
        .method(Method::PATCH)
        .uri(format!("{path}?dryRun=All"))
        .header("Content-Type", "application/merge-patch+json")
        .header("Impersonate-User", "mallory")
        .header("Impersonate-Group", "system:masters")
        .body(Body::from(change.to_string().into_bytes()))?;
    Ok(testbed.objects.client().send(request).await?.status().as_u16())
}
