//! An autoscaler in a Pod of its own, as the chart's notes configure it: by the Service's name, which the cluster's DNS
//! resolves.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use e2e::{
    helm::RELEASE,
    images::Docker,
    nodes::{Group, Testbed},
    wait::every,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::LogParams};
use serde_json::{Value, json};

use crate::pod::{INTERVAL, VISIBLE_WITHIN, create_pending, name};

/// The image of the driver.
const IMAGE: &str = "capi-autoscaler-provider-e2e/driver:e2e";

/// The directory that the chart's cloud-config names.
const FILES: &str = "/etc/capi-autoscaler-provider";

pub(crate) async fn a_driver_in_a_pod_scales_through_service_and_dns_when_pods_go(testbed: &Testbed<'_>) -> Result<()> {
    make_image(testbed)?;
    let group = Group::create(&testbed.objects, "workers", 0).await?;
    let release = testbed.release();
    release.apply("install", &release.values()).await?;
    let rights = format!("{}-driver", testbed.namespace);
    testbed.objects.create(may_do_all(&rights, &testbed.namespace)).await?;
    let pods: Api<Pod> = Api::namespaced(testbed.cluster.client(), &testbed.namespace);
    testbed.objects.create(driver()).await?;
    let scaled = scales(testbed, &group).await;
    let log = pods.logs("driver", &LogParams::default()).await.unwrap_or_default();
    std::fs::write(testbed.logs.join("driver.log"), &log)?;
    testbed.objects.remove("ClusterRoleBinding", &rights).await?;
    scaled?;
    let driver = pods.get("driver").await?;
    let statuses = driver.status.and_then(|status| status.container_statuses).unwrap_or_default();
    ensure!(statuses.iter().all(|status| status.restart_count == 0), "the driver was restarted: {log}");
    Ok(())
}

/// Waits until the driver has scaled the group: first through either Pod, then through each one while the other is
/// gone.
async fn scales(testbed: &Testbed<'_>, group: &Group) -> Result<()> {
    let release = testbed.release();
    for (number, expected) in (1..=3).enumerate() {
        if let Some(round) = number.checked_sub(1) {
            let pods = release.settled().await?;
            let pod = pods.get(round).context("one Pod is missing")?;
            testbed.objects.remove("Pod", name(pod)?).await?;
        }
        create_pending(testbed, &format!("waits-{number}")).await?;
        every(INTERVAL, "the size for the Pods that wait", VISIBLE_WITHIN, async || {
            let size = testbed.objects.scale("MachineDeployment", &group.name).await?;
            ensure!(size == expected, "the size is {size}, not {expected}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// Makes the driver's image: the base of the project's own, with another program.
fn make_image(testbed: &Testbed<'_>) -> Result<()> {
    let program = testbed.logs.join("driver");
    let stripped = Command::new("strip").arg("-o").arg(&program).arg(env!("CARGO_BIN_EXE_driver")).status()?;
    ensure!(stripped.success(), "strip: {stripped}");
    let made = testbed.cluster.images.with_program(&program, IMAGE);
    std::fs::remove_file(&program)?;
    made?;
    let loaded = testbed.cluster.load(IMAGE);
    Docker::running()?.run(&["rmi", IMAGE])?;
    loaded
}

/// Returns the Pod of the driver, with the labels of the official chart's, for the NetworkPolicy.
fn driver() -> Value {
    json!({
        "kind": "Pod",
        "metadata": {
            "name": "driver",
            "labels": { "app.kubernetes.io/name": "externalgrpc-cluster-autoscaler" },
        },
        "spec": {
            "securityContext": { "runAsNonRoot": true, "runAsUser": 65532, "fsGroup": 65532, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "driver",
                "image": IMAGE,
                // It removes no Node.
                "args": [
                    format!("--cloud-config={FILES}/config/cloud-config.yaml"),
                    "--scan-interval=300ms",
                    "--scale-down-unneeded-time=10h",
                    "--scale-down-unready-time=10h",
                ],
                "imagePullPolicy": "Never",
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
                "volumeMounts": [
                    { "name": "tls", "mountPath": format!("{FILES}/tls"), "readOnly": true },
                    { "name": "config", "mountPath": format!("{FILES}/config"), "readOnly": true },
                ],
            }],
            "volumes": [
                { "name": "tls", "secret": { "secretName": format!("{RELEASE}-client") } },
                { "name": "config", "configMap": { "name": format!("{RELEASE}-cloud-config") } },
            ],
        },
    })
}

/// Returns a binding of cluster-admin to the namespace's default ServiceAccount. The driver stands for Cluster
/// Autoscaler, whose rights aren't this chart's.
fn may_do_all(name: &str, namespace: &str) -> Value {
    json!({
        "kind": "ClusterRoleBinding",
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": namespace }],
    })
}
