//! Features of Cluster Autoscaler that depend on what a provider says of its node groups.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::{
    controllers::{
        groups::{Group, Workers},
        testbed::pod_spec,
    },
    crds::{self, Reach},
    objects::AUTOSCALING_GROUP,
};
use serde_json::json;

use super::{Outcome, PATIENCE, capacity, growing};
use crate::stage::{Run, Stage};

pub(super) async fn balance(stage: &Stage) -> Result<Outcome> {
    spread(stage, &["--balance-similar-node-groups"]).await
}

pub(super) async fn parallel(stage: &Stage) -> Result<Outcome> {
    spread(stage, &["--balance-similar-node-groups", "--parallel-scale-up"]).await
}

/// Two groups that differ in nothing but their name.
async fn spread(stage: &Stage, flags: &[&str]) -> Result<Outcome> {
    let mut groups = Vec::new();
    for name in ["first", "second"] {
        groups.push(Workers::new(name).sized().create(&stage.testbed).await?);
    }
    let run = stage.start(&stage.access(), growing(), flags).await?;
    for number in 0..4 {
        stage.pod(&format!("web-{number}"), "3").await?;
    }
    become_sizes(stage, run, &[(&groups[0], 2), (&groups[1], 2)]).await
}

/// Each Pod fits one of the groups only.
pub(super) async fn salvo(stage: &Stage) -> Result<Outcome> {
    const LABEL: &str = "node.cluster.x-k8s.io/pool";
    let mut groups = Vec::new();
    for name in ["first", "second"] {
        let labels = format!("{LABEL}={name}");
        let workers = Workers::new(name).sized().label(LABEL, name);
        groups.push(
            workers
                .annotate("capacity.cluster-autoscaler.kubernetes.io/labels", &labels)
                .create(&stage.testbed)
                .await?,
        );
    }
    let run = stage.start(&stage.access(), growing(), &["--salvo-scale-up"]).await?;
    for name in ["first", "second"] {
        stage.pod_on(name, "3", &json!({ LABEL: name })).await?;
    }
    become_sizes(stage, run, &[(&groups[0], 1), (&groups[1], 1)]).await
}

/// The group with the higher priority wastes more.
pub(super) async fn priority_expander(stage: &Stage) -> Result<Outcome> {
    let small = Workers::new("small").publishing(capacity("4")).create(&stage.testbed).await?;
    let big = Workers::new("big").publishing(capacity("16")).create(&stage.testbed).await?;
    let priorities = json!({
        "kind": "ConfigMap",
        "metadata": { "name": "cluster-autoscaler-priority-expander" },
        "data": { "priorities": "10:\n  - .*/small$\n20:\n  - .*/big$\n" },
    });
    stage.environment.workload.objects("kube-system").create(priorities).await?;
    let run = stage.start(&stage.access(), growing(), &["--expander=priority"]).await?;
    stage.pod("web", "3").await?;
    become_sizes(stage, run, &[(&small, 0), (&big, 1)]).await
}

/// The cheaper group wastes more.
pub(super) async fn price_expander(stage: &Stage) -> Result<Outcome> {
    const PRICE: &str = "capacity.capi-autoscaler-provider.io/price-per-hour";
    let dear = Workers::new("dear").publishing(capacity("4")).annotate(PRICE, "3.5").create(&stage.testbed).await?;
    let cheap = Workers::new("cheap").publishing(capacity("8")).annotate(PRICE, "0.4").create(&stage.testbed).await?;
    let run = stage.start(&stage.access(), growing(), &["--expander=price"]).await?;
    stage.pod("web", "3").await?;
    become_sizes(stage, run, &[(&dear, 0), (&cheap, 1)]).await
}

/// Nothing but the buffer asks for Nodes.
pub(super) async fn capacity_buffer(stage: &Stage) -> Result<Outcome> {
    let group = Workers::new("workers").sized().create(&stage.testbed).await?;
    install(stage, "CapacityBuffer", &["v1alpha1", "v1beta1"], Reach::Namespace).await?;
    let flags = ["--capacity-buffer-controller-enabled=true", "--capacity-buffer-pod-injection-enabled=true"];
    let run = stage.start(&stage.access(), growing(), &flags).await?;
    pod_template(stage).await?;
    let spec = json!({
        "podTemplateRef": { "name": "spare" },
        "replicas": 2,
        "provisioningStrategy": "buffer.x-k8s.io/active-capacity",
    });
    stage
        .testbed
        .workload
        .create(json!({ "kind": "CapacityBuffer", "metadata": { "name": "spare" }, "spec": spec }))
        .await?;
    become_sizes(stage, run, &[(&group, 2)]).await
}

/// Three Pods need a Node each.
pub(super) async fn capacity_quota(stage: &Stage) -> Result<Outcome> {
    let group = Workers::new("workers").sized().create(&stage.testbed).await?;
    install(stage, "CapacityQuota", &["v1alpha1", "v1beta1"], Reach::Cluster).await?;
    let spec = json!({ "limits": { "resources": { "nodes": 2 } } });
    stage
        .testbed
        .workload
        .create(json!({ "kind": "CapacityQuota", "metadata": { "name": "two" }, "spec": spec }))
        .await?;
    let mut run = stage.start(&stage.access(), growing(), &["--capacity-quotas-enabled=true"]).await?;
    for number in 0..3 {
        stage.pod(&format!("web-{number}"), "3").await?;
    }
    let grown = run.within(PATIENCE, async || stage.has_size(&group, 2).await).await;
    if grown.is_err() {
        return Ok(Outcome::after("", grown));
    }
    run.turn();
    let quiet = run.stays(Duration::from_secs(15), async || stage.has_size(&group, 2).await);
    Ok(match quiet.await {
        Ok(()) => Outcome::good("two Nodes"),
        Err(last) => Outcome::bad(last),
    })
}

pub(super) async fn provisioning_request(stage: &Stage) -> Result<Outcome> {
    let group = Workers::new("workers").sized().create(&stage.testbed).await?;
    install(stage, "ProvisioningRequest", &["v1beta1", "v1"], Reach::Namespace).await?;
    let mut run = stage.start(&stage.access(), growing(), &["--enable-provisioning-requests=true"]).await?;
    pod_template(stage).await?;
    let spec = json!({
        "provisioningClassName": "best-effort-atomic-scale-up.autoscaling.x-k8s.io",
        "podSets": [{ "count": 2, "podTemplateRef": { "name": "spare" } }],
    });
    let objects = &stage.testbed.workload;
    objects.create(json!({ "kind": "ProvisioningRequest", "metadata": { "name": "job" }, "spec": spec })).await?;
    run.turn();
    let provisioned = run.within(PATIENCE, async || {
        let status = objects.get("ProvisioningRequest", "job").await?.data["status"]["conditions"].clone();
        let conditions = status.as_array().map(Vec::as_slice).unwrap_or_default();
        let done = conditions.iter().any(|it| it["type"] == "Provisioned" && it["status"] == "True");
        let size = stage.testbed.objects.scale(group.kind, &group.name).await?;
        ensure!(done && size == 2, "the node group has {size} replicas, and the conditions are {status}");
        Ok(())
    });
    Ok(Outcome::after("provisioned with two Nodes", provisioned.await))
}

/// Installs one of Cluster Autoscaler's kinds, which takes any content.
async fn install(stage: &Stage, kind: &str, versions: &[&str], reach: Reach) -> Result<()> {
    crds::install_open(&stage.testbed.workload, AUTOSCALING_GROUP, kind, versions, reach).await
}

/// Creates a template of a Pod that needs a Node for itself.
async fn pod_template(stage: &Stage) -> Result<()> {
    let pod = pod_spec("3", &json!({}));
    let template = json!({ "kind": "PodTemplate", "metadata": { "name": "spare" }, "template": { "spec": pod } });
    stage.testbed.workload.create(template).await?;
    Ok(())
}

async fn become_sizes(stage: &Stage, mut run: Run, expected: &[(&Group, i32)]) -> Result<Outcome> {
    run.turn();
    let sizes = async || -> Result<String> {
        let mut sizes = Vec::new();
        for (group, _) in expected {
            let size = stage.testbed.objects.scale(group.kind, &group.name).await?;
            sizes.push(format!("{} has {size}", group.name));
        }
        Ok(sizes.join(", "))
    };
    let wanted: Vec<String> = expected.iter().map(|(group, size)| format!("{} has {size}", group.name)).collect();
    let wanted = wanted.join(", ");
    let are = run.within(PATIENCE, async || {
        let sizes = sizes().await?;
        ensure!(sizes == wanted, "{sizes}");
        Ok(())
    });
    Ok(Outcome::after(wanted.clone(), are.await))
}
