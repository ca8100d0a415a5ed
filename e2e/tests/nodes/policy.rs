//! The chart's NetworkPolicies by its default values, enforced by kube-router on the Node: kind's own network enforces
//! none.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use e2e::{
    go,
    nodes::{POLL_INTERVAL, TIMEOUT, Testbed},
    wait::every,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::ListParams};
use serde_json::{Value, json};

use crate::pod::{VISIBLE_WITHIN, name, process, process_of};

const GRPC: u16 = 8086;
const METRICS: u16 = 8080;
const PROBES: u16 = 8082;
/// CoreDNS answers metrics here, which nothing in the chart may ask for.
const METRICS_OF_DNS: u16 = 9153;

pub(crate) async fn an_autoscaler_alone_reaches_grpc_and_a_pod_only_what_it_needs(testbed: &Testbed<'_>) -> Result<()> {
    let release = testbed.release();
    let pods = release.apply("install", &release.values()).await?;
    let elsewhere = format!("{}-elsewhere", testbed.namespace);
    testbed.objects.create(json!({ "kind": "Namespace", "metadata": { "name": elsewhere } })).await?;
    let labels = json!({ "app.kubernetes.io/name": "externalgrpc-cluster-autoscaler" });
    let clients = [
        Client::create(testbed, &testbed.namespace, "autoscaler", &labels).await?,
        Client::create(testbed, &testbed.namespace, "stranger", &json!({})).await?,
        Client::create(testbed, &elsewhere, "autoscaler", &labels).await?,
    ];
    let [autoscaler, stranger, look_alike] = &clients;
    let dns = address_of_dns(testbed).await?;
    let check = async |expected: &[(&Client, &str, u16, bool)]| {
        every(POLL_INTERVAL, "connections as expected", VISIBLE_WITHIN, async || {
            for (client, address, port, may) in expected {
                let reached = client.reaches(testbed, address, *port);
                ensure!(reached == *may, "{} reaches {address}:{port}: {reached}", client.name);
            }
            Ok(())
        })
        .await
    };

    // Nobody is refused yet, so that a refusal is the firewall's.
    for pod in &pods {
        let (address, own) = (address(pod)?, Client::of(testbed, pod)?);
        let all = clients.iter().flat_map(|client| [GRPC, METRICS, PROBES].map(|port| (client, address, port, true)));
        check(&all.chain([(&own, dns.as_str(), METRICS_OF_DNS, true)]).collect::<Vec<_>>()).await?;
    }
    start_firewall(testbed)?;
    let outcome = async {
        // Probes, lists and watches of Pods that start now pass the firewall.
        for pod in &pods {
            testbed.objects.remove("Pod", name(pod)?).await?;
        }
        for pod in &release.settled().await? {
            let (address, own) = (address(pod)?, Client::of(testbed, pod)?);
            check(&[
                (autoscaler, address, GRPC, true),
                (autoscaler, address, PROBES, false),
                (stranger, address, GRPC, false),
                (stranger, address, METRICS, true),
                (look_alike, address, GRPC, false),
                (look_alike, address, METRICS, true),
                (&own, &dns, 53, true),
                (&own, &dns, METRICS_OF_DNS, false),
                // No policy selects it.
                (stranger, &dns, METRICS_OF_DNS, true),
            ])
            .await?;
        }
        Ok(())
    };
    let outcome = outcome.await;
    let removed = testbed.objects.remove("Namespace", &elsewhere).await;
    outcome.and(removed)
}

/// Starts kube-router's firewall as a process of the Node with an administrator's rights. Its own clean-up crashes where the
/// kernel has no IPVS, so it stays.
fn start_firewall(testbed: &Testbed<'_>) -> Result<()> {
    let program = testbed.cluster.node_files()?.join("usr/local/bin/kube-router");
    fs::copy(go::kube_router()?, &program).with_context(|| format!("copying to {}", program.display()))?;
    let node = testbed.cluster.on_node(&["hostname"])?;
    testbed.cluster.on_node(&[
        "systemd-run",
        "--unit=kube-router",
        "kube-router",
        "--kubeconfig=/etc/kubernetes/admin.conf",
        &format!("--hostname-override={}", node.trim()),
        "--run-firewall=true",
        "--run-router=false",
        "--run-service-proxy=false",
    ])?;
    Ok(())
}

/// A Pod from whose network connections are tried.
struct Client {
    name: String,
    /// A process of it, on the Node.
    process: String,
}

impl Client {
    /// Returns a Pod of the program itself.
    fn of(testbed: &Testbed<'_>, pod: &Pod) -> Result<Self> {
        Ok(Self { name: name(pod)?.to_owned(), process: process(testbed, pod)? })
    }

    /// Creates a Pod with these labels that does nothing.
    async fn create(testbed: &Testbed<'_>, namespace: &str, name: &str, labels: &Value) -> Result<Self> {
        let images = testbed.cluster.on_node(&["ctr", "--namespace=k8s.io", "images", "list", "--quiet"])?;
        let image = images.lines().find(|image| image.contains("/pause:")).context("the Node has no image of pause")?;
        let pod = json!({
            "kind": "Pod",
            "metadata": { "name": name, "labels": labels },
            "spec": {
                "securityContext": {
                    "runAsNonRoot": true,
                    "runAsUser": 65532,
                    "seccompProfile": { "type": "RuntimeDefault" },
                },
                "containers": [{
                    "name": "pause",
                    "image": image,
                    "imagePullPolicy": "Never",
                    "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
                }],
            },
        });
        testbed.cluster.objects(namespace).create(pod).await?;
        let api: Api<Pod> = Api::namespaced(testbed.cluster.client(), namespace);
        let process = every(POLL_INTERVAL, "a client's Pod", TIMEOUT, async || {
            process_of(testbed, &api.get(name).await?, "pause")
        })
        .await?;
        Ok(Self { name: format!("{namespace}/{name}"), process })
    }

    /// Tries to connect.
    fn reaches(&self, testbed: &Testbed<'_>, address: &str, port: u16) -> bool {
        let connect = format!("exec 3<>/dev/tcp/{address}/{port}");
        let tried = ["nsenter", "--net", "--target", &self.process, "timeout", "3", "bash", "-c", &connect];
        testbed.cluster.on_node(&tried).is_ok()
    }
}

fn address(pod: &Pod) -> Result<&str> {
    pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).context("a Pod without an address")
}

/// Returns the address of a Pod of CoreDNS.
async fn address_of_dns(testbed: &Testbed<'_>) -> Result<String> {
    let api: Api<Pod> = Api::namespaced(testbed.cluster.client(), "kube-system");
    let pods = api.list(&ListParams::default().labels("k8s-app=kube-dns")).await?;
    Ok(address(pods.items.first().context("no Pod of CoreDNS")?)?.to_owned())
}
