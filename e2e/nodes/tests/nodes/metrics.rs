//! The chart's alerts and dashboard on what a real Prometheus has scraped from Pods.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use e2e::{
    helm::{CHART, RELEASE},
    nodes::{Group, Testbed},
    objects::CAPI_GROUP,
    prometheus::{Prometheus, SCRAPE_INTERVAL, dashboard_queries, is_of_fleet},
    wait::every,
};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::pod::{INTERVAL, VISIBLE_WITHIN, name};

/// The dashboard's queries without a result here, by panel and letter: retried commands, failed lists and watches, and
/// undecodable objects. These queries have series if their comparison with 0 is removed.
const QUIET: [&str; 4] = ["16 B", "34 A", "34 B", "38 A"];

/// The alerts that are active here, because of `create_troubles` and `refuse_sizes`.
const ACTIVE: [&str; 3] = [
    "CapiAutoscalerProviderGroupInvalid",
    "CapiAutoscalerProviderTemplatesUnreadable",
    "CapiAutoscalerProviderWritesRefused",
];

/// Starts a Prometheus that scrapes these Pods as the chart's `ServiceMonitor` would.
async fn scraping(testbed: &Testbed<'_>, pods: &[Pod]) -> Result<Prometheus> {
    let mut targets = Vec::new();
    for pod in pods {
        let pod = name(pod)?;
        testbed.objects.patch("Pod", pod, json!({ "metadata": { "labels": { "scraped": pod } } })).await?;
        let service = testbed.objects.create(json!({
            "kind": "Service",
            "metadata": { "name": format!("scraped-{pod}") },
            "spec": { "type": "NodePort", "selector": { "scraped": pod }, "ports": [{ "port": 8080, "targetPort": "http" }] },
        }));
        let port = service.await?.data["spec"]["ports"][0]["nodePort"].clone();
        let labels = json!({ "namespace": testbed.namespace, "pod": pod, "instance": pod });
        targets.push(json!({ "targets": [format!("{}:{port}", testbed.cluster.node_address()?)], "labels": labels }));
    }
    Prometheus::start(&testbed.logs.join("prometheus"), &targets, VISIBLE_WITHIN).await
}

pub(crate) async fn prometheus_evaluates_every_alert_and_every_query_of_the_dashboard(
    testbed: &Testbed<'_>,
) -> Result<()> {
    let group = Group::create(&testbed.objects, "workers", 3).await?;
    create_troubles(testbed).await?;
    let closed = Group::create(&testbed.objects, "closed", 0).await?;
    let policy = refuse_sizes(&testbed.namespace, &closed.name);
    for object in &policy {
        testbed.objects.create(object.clone()).await?;
    }
    let evaluated = evaluates(testbed, &group, &closed).await;
    for object in &policy {
        testbed.objects.remove(object["kind"].as_str().unwrap_or_default(), &testbed.namespace).await?;
    }
    evaluated
}

async fn evaluates(testbed: &Testbed<'_>, group: &Group, closed: &Group) -> Result<()> {
    let release = testbed.release();
    let pods = release.apply("install", &release.values()).await?;
    let prometheus = scraping(testbed, &pods).await?;

    // Calls of every kind go on until all queries have seen them. One exceeds the max size, and the policy refuses
    // another.
    let caller = release.connection(&release.outside_of_all().await?).await?.caller();
    let calls = async || -> Result<()> {
        caller.refresh().await?;
        caller.increase(&group.id, 1).await?;
        caller.decrease(&group.id, -1).await?;
        ensure!(caller.increase(&group.id, 100).await.is_err(), "a group grows beyond its max size");
        ensure!(caller.increase(&closed.id, 1).await.is_err(), "no policy is in force yet");
        Ok(())
    };
    every(INTERVAL, "the first answer", VISIBLE_WITHIN, async || Ok(caller.refresh().await?)).await?;
    let node = group.nodes.first().context("a group without Nodes")?;
    caller.delete(&group.id, std::slice::from_ref(node)).await?;
    // Those about a fleet have a scenario of their own, beside the fleet's.
    let queries: Vec<_> =
        dashboard_queries(&testbed.namespace)?.into_iter().filter(|(_, query)| !is_of_fleet(query)).collect();
    ensure!(queries.len() > 30, "{queries:?}");
    every(SCRAPE_INTERVAL, "series for every query", VISIBLE_WITHIN, async || {
        calls().await?;
        let mut empty = BTreeSet::new();
        let mut results = String::new();
        for (of, query) in &queries {
            let is_quiet = QUIET.contains(&of.as_str());
            let asked = query.strip_suffix(" > 0").filter(|_| is_quiet).unwrap_or(query);
            let series = prometheus.query(asked).await?;
            writeln!(results, "{of}\t{}\t{asked}", series.len())?;
            if series.is_empty() {
                empty.insert(of.as_str());
            }
            ensure!(!is_quiet || asked != query, "{of} compares nothing with 0, and can't be empty");
        }
        fs::write(testbed.logs.join("queries.txt"), &results)?;
        ensure!(empty.is_empty(), "no series for {empty:?}");
        Ok(())
    })
    .await?;

    let written = fs::read_to_string(Path::new(CHART).join("files/alerts.yaml"))?;
    let written: Value = serde_yaml::from_str(&written)?;
    let expected = written["groups"][0]["rules"].as_array().context("no alerts")?.len();
    every(SCRAPE_INTERVAL, "the alerts for what is wrong", VISIBLE_WITHIN, async || {
        let alerts = prometheus.alerts().await?;
        ensure!(alerts.len() == expected, "{} of {expected} alerts: {alerts:?}", alerts.len());
        let active = alerts.iter().filter(|(_, state)| state != "inactive");
        let active: BTreeSet<_> = active.map(|(name, _)| name.as_str()).collect();
        ensure!(active == ACTIVE.into(), "these are active: {active:?}");
        Ok(())
    })
    .await?;

    // Without Pods one more alert becomes pending.
    testbed.objects.patch("Deployment", RELEASE, json!({ "spec": { "replicas": 0 } })).await?;
    every(INTERVAL, "the alert for absent Pods", VISIBLE_WITHIN, async || {
        let alerts = prometheus.alerts().await?;
        let absent = alerts.iter().find(|(name, _)| name == "CapiAutoscalerProviderAbsent");
        let known = absent.map(|(_, known)| known.as_str());
        ensure!(known == Some("pending"), "it is {known:?}");
        Ok(())
    })
    .await
}

/// Creates groups in states that some panels and alerts show: a max size that is no number, a size beyond the max size
/// together with a kind of template that doesn't exist, a rollout, and a Machine whose infrastructure was deleted
/// before its Node came.
async fn create_troubles(testbed: &Testbed<'_>) -> Result<()> {
    let objects = &testbed.objects;
    let max = |size: &str| json!({ "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": size });
    let wrong = Group::create(objects, "wrong", 0).await?;
    objects.annotate("MachineDeployment", &wrong.name, max("many")).await?;

    let large = Group::create(objects, "large", 2).await?;
    objects.annotate("MachineDeployment", &large.name, max("1")).await?;
    let absent = json!({ "spec": { "infrastructureRef": { "kind": "AbsentMachineTemplate" } } });
    objects.patch("MachineDeployment", &large.name, json!({ "spec": { "template": absent } })).await?;

    let rolling = Group::create(objects, "rolling", 1).await?;
    let set = objects.get("MachineSet", &format!("{}-set", rolling.name)).await?;
    let older = json!({
        "kind": "MachineSet",
        "metadata": {
            "name": format!("{}-older", rolling.name),
            "labels": set.metadata.labels,
            "ownerReferences": set.metadata.owner_references,
        },
        "spec": set.data["spec"],
        "status": { "replicas": 1 },
    });
    objects.create(older).await?;

    let failed = Group::create(objects, "failed", 1).await?;
    for (machine, node) in failed.machines.iter().zip(&failed.nodes) {
        objects.remove("Node", &node.name).await?;
        objects.patch("Machine", machine, json!({ "spec": { "providerID": null } })).await?;
        let condition = json!({
            "type": "InfrastructureReady",
            "status": "False",
            "reason": "Deleted",
            "message": "the machine is gone",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let status = json!({ "phase": "Provisioning", "nodeRef": null, "conditions": [condition] });
        objects.patch_status("Machine", machine, status).await?;
    }
    Ok(())
}

/// Returns a policy, and its binding, that refuses every change of the size of one MachineDeployment.
fn refuse_sizes(namespace: &str, deployment: &str) -> [Value; 2] {
    let metadata = json!({ "name": namespace });
    let changes = "object.spec.replicas != oldObject.spec.replicas";
    [
        json!({
            "kind": "ValidatingAdmissionPolicy",
            "metadata": metadata,
            "spec": {
                "matchConstraints": {
                    "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
                    "resourceRules": [{
                        "apiGroups": [CAPI_GROUP],
                        "apiVersions": ["*"],
                        "operations": ["UPDATE"],
                        "resources": ["machinedeployments", "machinedeployments/scale"],
                    }],
                },
                "validations": [{ "expression": format!("object.metadata.name != '{deployment}' || !({changes})") }],
            },
        }),
        json!({
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": { "policyName": namespace, "validationActions": ["Deny"] },
        }),
    ]
}
