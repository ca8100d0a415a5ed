//! Pods as the kubelet runs them: their rights, probes and termination.

use std::{fs, os::unix::fs::symlink};

use anyhow::{Context as _, Result, ensure};
use e2e::{
    nodes::{POLL_INTERVAL, TIMEOUT, Testbed, create_group},
    provider::Caller,
    wait::every,
};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::LogParams};
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tonic::transport::Endpoint;

use crate::pod::process;

pub(crate) async fn they_run_under_restricted_pod_security_without_rights(testbed: &Testbed<'_>) -> Result<()> {
    let release = testbed.release();
    // The namespace enforces the restricted level: Pods that broke it would never be made.
    let pods = release.apply("install", &release.values()).await?;
    for pod in &pods {
        let process = process(testbed, pod)?;
        let status = testbed.cluster.on_node(&["cat", &format!("/proc/{process}/status")])?;
        let field = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim).map(str::to_owned);
            line.with_context(|| format!("no {key} in {status}"))
        };
        let ids: Vec<_> = field("Uid:")?.split_whitespace().map(str::to_owned).collect();
        ensure!(ids.iter().all(|id| id == "65532"), "it runs as {ids:?}");
        for capabilities in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
            let value = field(capabilities)?;
            ensure!(value.chars().all(|digit| digit == '0'), "{capabilities} {value}");
        }
        ensure!(field("NoNewPrivs:")? == "1", "it can get new privileges");
        ensure!(field("Seccomp:")? == "2", "no seccomp filter");
        let mounts = testbed.cluster.on_node(&["cat", &format!("/proc/{process}/mounts")])?;
        let root = mounts.lines().find(|line| line.split(' ').nth(1) == Some("/")).context("no root file system")?;
        let options = root.split(' ').nth(3).unwrap_or_default();
        ensure!(options.split(',').any(|option| option == "ro"), "the root file system is mounted {options}");
    }
    Ok(())
}

/// The sidecar is that of the example, beside a container that stands for Cluster Autoscaler, which no image has here.
pub(crate) async fn a_sidecar_serves_on_a_unix_socket(testbed: &Testbed<'_>) -> Result<()> {
    let group = create_group(&testbed.objects, "workers", 1).await?;
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let rights = fs::read_to_string(format!("{repository}/examples/rbac.yaml"))?;
    for document in serde_yaml::Deserializer::from_str(&rights) {
        let mut object = Value::deserialize(document)?;
        if object.is_null() || object["metadata"]["namespace"] != "team-a" {
            continue;
        }
        for subject in object["subjects"].as_array_mut().into_iter().flatten() {
            subject["namespace"] = json!(testbed.namespace);
        }
        testbed.objects.create(object).await?;
    }
    // The example finds the workload cluster by its Cluster's Secret.
    let kubeconfig = testbed.cluster.kubeconfig_for_pods().to_string();
    let secret = json!({
        "kind": "Secret",
        "metadata": { "name": "prod-kubeconfig", "labels": { "cluster.x-k8s.io/cluster-name": "prod" } },
        "stringData": { "value": kubeconfig },
    });
    testbed.objects.create(secret).await?;
    let example = fs::read_to_string(format!("{repository}/examples/cluster-autoscaler/values.yaml"))?;
    let example: Value = serde_yaml::from_str(&example)?;
    let mut sidecar = example["initContainers"][0].clone();
    sidecar["image"] = json!(testbed.cluster.images.project.name);
    sidecar["imagePullPolicy"] = json!("Never");
    sidecar["args"][1] = json!(format!("--cluster={}/prod", testbed.namespace));
    let harmless = json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } });
    sidecar["securityContext"] = harmless.clone();
    let mut security = example["securityContext"].clone();
    security["seccompProfile"] = json!({ "type": "RuntimeDefault" });
    let pause = testbed.cluster.on_node(&["sh", "-c", "ctr --namespace=k8s.io images list --quiet | grep /pause:"])?;
    let pod = json!({
        "kind": "Pod",
        "metadata": { "name": "autoscaler" },
        "spec": {
            "serviceAccountName": example["rbac"]["serviceAccount"]["name"],
            "securityContext": security,
            "initContainers": [sidecar],
            "containers": [{
                "name": "autoscaler",
                "image": pause.lines().next(),
                "imagePullPolicy": "Never",
                "securityContext": harmless,
                "volumeMounts": [{ "name": "grpc", "mountPath": "/run/capi-autoscaler-provider" }],
            }],
            "volumes": [{ "name": "grpc", "emptyDir": {} }],
        },
    });
    let created = testbed.objects.create(pod).await?;
    let api: Api<Pod> = Api::namespaced(testbed.cluster.client(), &testbed.namespace);
    let running = every(POLL_INTERVAL, "both containers", TIMEOUT, async || {
        let pod = api.get("autoscaler").await?;
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        let ready = conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True");
        ensure!(ready, "{:?}", pod.status);
        Ok(pod)
    })
    .await;
    if running.is_err() {
        let of = LogParams { container: Some("capi-autoscaler-provider".to_owned()), ..LogParams::default() };
        fs::write(testbed.logs.join("sidecar.log"), api.logs("autoscaler", &of).await.unwrap_or_default())?;
    }
    running?;

    let uid = created.metadata.uid.context("a Pod without uid")?;
    let volume = format!("var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~empty-dir/grpc");
    // A socket's path may have 107 letters, so that a link leads to it.
    let near = tempfile::tempdir()?;
    symlink(testbed.cluster.node_files()?.join(volume), near.path().join("grpc"))?;
    let socket = near.path().join("grpc/grpc.sock");
    let channel = Endpoint::from_static("http://socket").connect_with_connector_lazy(tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    }));
    Caller::by(channel).shows(&[&group.id]).await
}
