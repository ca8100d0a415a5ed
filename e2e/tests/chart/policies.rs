//! Tests of the chart's admission policies on a real API server: only their writers may write the deletion logs, and a
//! policy reports the annotations that the program's own parsers ignore.

mod annotations;
mod api;
mod deletion_log;
mod rendered;
mod texts;

use anyhow::{Context as _, Result};
use e2e::{helm::Values, objects::CAPI_GROUP, wait::SOON};
use serde_json::{Value, json};

use self::api::Api;
use crate::cluster::{Cluster, release};

const LOG: &str = "capi-autoscaler-provider.io/deleting";
const REPLACED: &str = "capi-autoscaler-provider.io/replaced";
const SIZES: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-";
const OPTIONS: &str = "cluster.x-k8s.io/autoscaling-options-";
const CAPACITY: &str = "capacity.cluster-autoscaler.kubernetes.io/";
const OWN: &str = "capacity.capi-autoscaler-provider.io/";

/// One API server for both policies, since its start costs more than the checks.
#[tokio::test(flavor = "multi_thread")]
async fn policies_keep_the_log_to_who_writes_it_and_report_what_the_program_sets_aside() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.helm.apply("install", &both())?;
    let api = Api::of_somebody(&cluster.plane).await?;
    deletion_log::only_the_program_and_cluster_api_write_it(&cluster, &api).await.context("the log of deletions")?;
    annotations::the_policy_and_the_program_agree(&api).await.context("the rules of annotations")?;
    annotations::a_large_object_is_judged_and_written(&api).await.context("large annotations")?;
    annotations::annotations_that_the_policy_ignores_are_in_the_audit_log(&cluster, &api)
        .await
        .context("the audit log")?;
    annotations::a_change_is_refused_only_for_what_it_makes_worse(&cluster, &api).await.context("refusals")
}

/// Returns the release with both policies, otherwise with default values.
fn both() -> Values {
    let policies = json!({ "deletionLog": { "enabled": true }, "annotations": { "enabled": true } });
    release().set("admissionPolicies", policies)
}

/// Returns an object that can be a node group, of the Cluster that the release serves, with these annotations.
fn group(kind: &str, name: &str, annotations: &Value) -> Value {
    let template = json!({
        "metadata": { "labels": { "workers": name } },
        "spec": {
            "clusterName": "prod",
            "failureDomain": "a",
            "bootstrap": { "dataSecretName": "bootstrap" },
            "infrastructureRef": {
                "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DevMachineTemplate", "name": "workers",
            },
        },
    });
    let mut object = json!({
        "apiVersion": format!("{CAPI_GROUP}/v1beta2"),
        "kind": kind,
        "metadata": { "name": name, "namespace": "team-a", "annotations": annotations },
        "spec": { "clusterName": "prod", "replicas": 3, "template": template },
    });
    if kind != "MachinePool" {
        object["spec"]["selector"] = json!({ "matchLabels": { "workers": name } });
    }
    object
}

/// The time after its creation within which a policy is compiled.
const IN_FORCE: std::time::Duration = SOON;
