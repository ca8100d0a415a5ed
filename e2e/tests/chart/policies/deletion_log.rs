//! Only the program and Cluster API may write the annotations `deleting` and `replaced`.

use anyhow::{Context as _, Result, ensure};
use e2e::{crds, go, objects::CAPI_GROUP, wait::eventually};
use serde_json::{Value, json};

use super::{
    IN_FORCE, LOG, REPLACED,
    api::{Answer, Api},
    both, group,
};
use crate::cluster::Cluster;

const PROGRAM: &str = "system:serviceaccount:team-a:capi-autoscaler-provider";
const CLUSTER_API: &str = "system:serviceaccount:capi-system:capi-manager";
const WORDS: &str = "is written by capi-autoscaler-provider and copied by Cluster API's controllers alone";
const KINDS: [&str; 3] = ["MachineDeployment", "MachineSet", "MachinePool"];

fn annotated(key: &str, value: &Value) -> Value {
    json!({ "metadata": { "annotations": { key: value } } })
}

/// Fails unless the policy denied the request.
fn denied(answer: &Answer) -> Result<()> {
    answer.refused(403, WORDS)
}

pub(crate) async fn only_the_program_and_cluster_api_write_it(cluster: &Cluster, somebody: &Api) -> Result<()> {
    let policy_is = async |denies: bool| {
        let probe = group("MachineDeployment", "probe", &json!({ LOG: "[]" }));
        eventually("the policy in force", IN_FORCE, async || {
            let answer = somebody.try_create(&probe).await?;
            if denies { denied(&answer) } else { answer.done().map(drop) }
        })
        .await
    };
    policy_is(true).await?;
    for kind in KINDS {
        of_a_kind(somebody, kind).await.with_context(|| kind.to_owned())?;
    }
    of_others(somebody).await?;
    of_topologies(cluster, somebody).await.context("topologies")?;
    by_the_programs_own_token(cluster, somebody).await?;

    // Each value of the chart changes that.
    cluster.helm.apply("upgrade", &both().set("admissionPolicies.deletionLog.creates", json!(false)))?;
    policy_is(false).await.context("objects may be made with it")?;
    denied(&somebody.patch("MachineSet", "workers", &annotated(LOG, &json!("[1]"))).await?)?;
    for (value, name) in [("users", "mallory"), ("groups", "system:masters")] {
        policy_after(cluster, &format!("admissionPolicies.deletionLog.{value}"), &json!([name]))?;
        policy_is(false).await.with_context(|| format!("{value} that may"))?;
        cluster.helm.apply("upgrade", &both())?;
        policy_is(true).await?;
    }
    policy_after(cluster, "admissionPolicies.deletionLog.validationActions", &json!(["Warn"]))?;
    let probe = group("MachineDeployment", "probe", &json!({ LOG: "[]" }));
    eventually("a warning", IN_FORCE, async || {
        let answer = somebody.try_create(&probe).await?;
        ensure!(answer.status == 201 && answer.warnings.iter().any(|warning| warning.contains(WORDS)), "{answer:?}");
        Ok(())
    })
    .await?;
    cluster.helm.apply("upgrade", &both())?;
    policy_is(true).await
}

fn policy_after(cluster: &Cluster, path: &str, value: &Value) -> Result<()> {
    cluster.helm.apply("upgrade", &both().set(path, value.clone())).map(drop)
}

async fn of_a_kind(somebody: &Api, kind: &str) -> Result<()> {
    let [program, cluster_api] = [PROGRAM, CLUSTER_API].map(|user| somebody.as_user(user));
    somebody.create(&group(kind, "workers", &json!({ "example.com/a": "b" }))).await?.done()?;
    for key in [LOG, REPLACED] {
        let with = group(kind, "made-with", &json!({ key: "text" }));
        denied(&somebody.try_create(&with).await?).context("creating")?;
        // A MachineSet is created with a copy of its MachineDeployment's annotations.
        cluster_api.try_create(&with).await?.done()?;

        denied(&somebody.patch(kind, "workers", &annotated(key, &json!("text"))).await?).context("adding")?;
        for (writer, text) in [(&program, "first"), (&cluster_api, "second")] {
            writer.patch(kind, "workers", &annotated(key, &json!(text))).await?.done()?;
        }
        denied(&somebody.patch(kind, "workers", &annotated(key, &json!("other"))).await?).context("changing")?;
        denied(&somebody.patch(kind, "workers", &annotated(key, &Value::Null)).await?).context("taking off")?;
        let mut object = somebody.patch(kind, "workers", &annotated("example.com/a", &json!("c"))).await?.done()?;
        // A write that keeps the annotation may change everything else.
        object["metadata"]["labels"] = json!({ "a": "b" });
        let mut object = somebody.replace(&object).await?.done()?;
        object["metadata"]["annotations"].as_object_mut().context("no annotations")?.remove(key);
        denied(&somebody.replace(&object).await?).context("replacing without it")?;

        // Writes of status and scale change no annotation.
        let status = json!({ "metadata": { "annotations": { key: "other" } }, "status": { "replicas": 1 } });
        let after = somebody.patch(kind, "workers/status", &status).await?.done()?;
        ensure!(after["metadata"]["annotations"][key] == "second", "changed by way of status: {after}");
        somebody.patch(kind, "workers/scale", &json!({ "spec": { "replicas": 2 } })).await?.done()?;
        program.patch(kind, "workers", &annotated(key, &Value::Null)).await?.done()?;
    }
    Ok(())
}

/// Checks objects of a Cluster that another release may serve.
async fn of_others(somebody: &Api) -> Result<()> {
    let mut other = group("MachineDeployment", "of-another", &json!({ LOG: "[]" }));
    other["spec"]["clusterName"] = json!("test");
    other["spec"]["template"]["spec"]["clusterName"] = json!("test");
    somebody.create(&other).await?.done()?;
    // A label neither makes an object part of this Cluster, nor moves it out of this one.
    let label = |name: &str| json!({ "metadata": { "labels": { "cluster.x-k8s.io/cluster-name": name }, "annotations": { LOG: "[1]" } } });
    somebody.patch("MachineDeployment", "of-another", &label("prod")).await?.done()?;
    denied(&somebody.patch("MachineDeployment", "workers", &label("test")).await?)?;

    // Cluster API's webhooks refuse another clusterName, and OpenShift's objects have none.
    let joins = |more: Value| {
        let template = json!({ "spec": { "clusterName": "prod" } });
        json!({ "metadata": { "annotations": more }, "spec": { "clusterName": "prod", "template": template } })
    };
    for key in [LOG, REPLACED] {
        let cluster_api = somebody.as_user(CLUSTER_API);
        let other_key = if key == LOG { REPLACED } else { LOG };
        let only_one = json!({ "metadata": { "annotations": { key: "forged", other_key: null } } });
        somebody.patch("MachineDeployment", "of-another", &only_one).await?.done()?;
        denied(&somebody.patch("MachineDeployment", "of-another", &joins(json!({}))).await?).context("joining")?;
        denied(&somebody.patch("MachineDeployment", "of-another", &joins(json!({ key: "other" }))).await?)?;
        let path = "of-another?dryRun=All";
        cluster_api.patch("MachineDeployment", path, &joins(json!({}))).await?.done()?;
        somebody.patch("MachineDeployment", path, &joins(json!({ key: null }))).await?.done()?;
    }
    Ok(())
}

/// Checks topologies and their classes, whose annotations Cluster API copies to the objects of node groups.
async fn of_topologies(cluster: &Cluster, somebody: &Api) -> Result<()> {
    let classes = go::components()?.crds().join(format!("{CAPI_GROUP}_clusterclasses.yaml"));
    crds::install_files(&cluster.objects, &[classes]).await?;
    let program = somebody.as_user(PROGRAM);
    for (kind, workers) in [
        ("Cluster", "machineDeployments"),
        ("Cluster", "machinePools"),
        ("ClusterClass", "machineDeployments"),
        ("ClusterClass", "machinePools"),
    ] {
        let name = format!("with-{}", workers.to_lowercase());
        for key in [LOG, REPLACED] {
            let with = |annotations: Value| topology(kind, &name, workers, &annotations);
            let tried = |object: Value| async move { somebody.try_create(&object).await };
            tried(with(json!({ "example.com/a": "b" }))).await?.done().context(kind)?;
            not_copied(&tried(with(json!({ key: "[]" }))).await?).with_context(|| format!("creating a {kind}"))?;

            somebody.create(&with(json!({}))).await?.done()?;
            let change = |annotations: Value| json!({ "spec": with(annotations)["spec"] });
            not_copied(&somebody.patch(kind, &name, &change(json!({ key: "[]" }))).await?).context("adding")?;
            // An annotation that is there already stops no other write.
            program.patch(kind, &name, &change(json!({ key: "[]" }))).await?.done()?;
            somebody.patch(kind, &name, &annotated("example.com/a", &json!("b"))).await?.done()?;
            not_copied(&somebody.patch(kind, &name, &change(json!({ key: "[1]" }))).await?).context("changing")?;
            somebody.patch(kind, &name, &change(json!({}))).await?.done()?;
            somebody.delete(kind, &name).await?;
        }
    }
    Ok(())
}

fn not_copied(answer: &Answer) -> Result<()> {
    answer.refused(403, "take it out of the topology, which Cluster API would copy")
}

/// Returns a Cluster or ClusterClass with one kind of workers with these annotations.
fn topology(kind: &str, name: &str, workers: &str, annotations: &Value) -> Value {
    let of = |kind: &str| json!({ "templateRef": { "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": kind, "name": "class" } });
    let metadata = json!({ "annotations": annotations });
    let spec = if kind == "Cluster" {
        let workers = json!({ workers: [{ "class": "worker", "name": "workers", "metadata": metadata }] });
        json!({ "topology": { "classRef": { "name": "class" }, "version": "v1.35.0", "workers": workers } })
    } else {
        let templates = json!({
            "class": "worker",
            "metadata": metadata,
            "bootstrap": of("LoopbackConfigTemplate"),
            "infrastructure": of("DevMachineTemplate"),
        });
        let own = [("infrastructure", of("DevClusterTemplate")), ("controlPlane", of("DevControlPlaneTemplate"))];
        let mut spec = json!({ "workers": { workers: [templates] } });
        for (field, reference) in own {
            spec[field] = reference;
        }
        spec
    };
    json!({
        "apiVersion": format!("{CAPI_GROUP}/v1beta2"),
        "kind": kind,
        "metadata": { "name": name, "namespace": "team-a" },
        "spec": spec,
    })
}

/// Checks writes with the program's own token.
async fn by_the_programs_own_token(cluster: &Cluster, somebody: &Api) -> Result<()> {
    let program = Api::of_release(&cluster.plane).await?;
    program.patch("MachineDeployment", "workers", &annotated(LOG, &json!("[]"))).await?.done()?;
    denied(&somebody.patch("MachineDeployment", "workers", &annotated(LOG, &Value::Null)).await?)
}
