//! The chart with its values for this topology, and an autoscaler in a Pod beside it: the Cluster Autoscaler that the
//! environment names, the project's driver, or the official chart where its image can be pulled.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use serde_json::{Value, json};

use super::{
    Management,
    workload::{NAMESPACE, file},
};
use crate::{
    autoscaling::{Binary, Version},
    capd,
    helm::{RELEASE, TOPOLOGIES, Values},
    images::Docker,
    nodes::{POLL_INTERVAL, Release, TIMEOUT},
    process::output,
    program,
    wait::every,
};

/// The example whose values are used.
const TOPOLOGY: &str = "management-cluster";

/// The name of the autoscaler's Deployment.
const NAME: &str = "cluster-autoscaler";

/// The image that is built of a program.
const IMAGE: &str = "capi-autoscaler-provider-e2e/cluster-autoscaler:e2e";

/// The flag of the age below which a Node that isn't ready counts as starting, and isn't removed. Cluster Autoscaler
/// has it since 1.35; before, that age is 15 minutes.
const STARTUP: &str = "--max-node-startup-time=60s";

/// The first version with the flag.
const WITH_STARTUP: Version = Version::new(35, 0);

/// The autoscaler of a run.
enum Autoscaler {
    /// A program, Cluster Autoscaler or the driver, with a flag that not all versions have.
    Program(PathBuf, Option<&'static str>),
    /// The official chart.
    Chart,
}

impl Autoscaler {
    fn chosen() -> Result<Self> {
        if let Some(binary) = Binary::named()?.pop() {
            let flags = (binary.version >= WITH_STARTUP).then_some(STARTUP);
            return Ok(Self::Program(binary.path, flags));
        }
        if env::var_os(capd::VARIABLE).is_some_and(|named| !named.is_empty()) {
            return Ok(Self::Program(program::build_driver()?, Some(STARTUP)));
        }
        Ok(Self::Chart)
    }
}

/// Installs the chart and the autoscaler, and waits until both are ready.
pub(super) async fn install(management: &Management) -> Result<()> {
    let release = Release::new(&management.cluster, NAMESPACE);
    release.apply("install", &release.with_image(Values::of_topology(TOPOLOGY, NAMESPACE)?)).await?;
    match Autoscaler::chosen()? {
        Autoscaler::Program(program, flag) => run(management, &program, flag).await,
        Autoscaler::Chart => install_chart(management),
    }
}

/// Returns the values files of the official chart.
fn values() -> [PathBuf; 2] {
    let example = Path::new(TOPOLOGIES).join(TOPOLOGY).join("cluster-autoscaler-values.yaml");
    [example, file("cluster-autoscaler-values.yaml")]
}

/// Installs the official chart of the version that the environment names, or of the newest.
fn install_chart(management: &Management) -> Result<()> {
    let mut arguments: Vec<String> = ["upgrade", "--install", NAME, "cluster-autoscaler"].map(str::to_owned).into();
    arguments.extend(["--repo", "https://kubernetes.github.io/autoscaler"].map(str::to_owned));
    arguments.extend(["--namespace", NAMESPACE, "--wait", "--timeout", "5m"].map(str::to_owned));
    for path in values() {
        arguments.push(format!("--values={}", path.display()));
    }
    for (variable, flag) in [("CHART_VERSION", "--version="), ("CLUSTER_AUTOSCALER_TAG", "--set=image.tag=")] {
        if let Some(value) = env::var(variable).ok().filter(|value| !value.is_empty()) {
            arguments.push(format!("{flag}{value}"));
        }
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    management.cluster.helm.run(&arguments)?;
    Ok(())
}

/// Runs a program in a Pod with the flags and files that the official chart would give it.
async fn run(management: &Management, program: &Path, flag: Option<&str>) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let stripped = directory.path().join(NAME);
    output(Command::new("strip").arg("-o").arg(&stripped).arg(program))?;
    management.cluster.images.with_program(&stripped, IMAGE)?;
    let loaded = management.cluster.load(IMAGE);
    Docker::running()?.run(&["rmi", IMAGE])?;
    loaded?;
    let objects = management.cluster.objects(NAMESPACE);
    let mut flags = flags()?;
    flags.extend(flag.map(str::to_owned));
    objects.create(deployment(&flags)).await?;
    let deployments: Api<Deployment> = Api::namespaced(management.cluster.client(), NAMESPACE);
    every(POLL_INTERVAL, "the autoscaler's Pod", TIMEOUT, async || {
        let status = deployments.get(NAME).await?.status.unwrap_or_default();
        ensure!(status.available_replicas == Some(1), "the Deployment is {status:?}");
        Ok(())
    })
    .await
}

/// Returns the flags in the values of the official chart; later files override earlier ones.
fn flags() -> Result<Vec<String>> {
    let mut flags = BTreeMap::new();
    for path in values() {
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let values: Value = serde_yaml::from_str(&text)?;
        let arguments =
            values["extraArgs"].as_object().with_context(|| format!("no extraArgs in {}", path.display()))?;
        for (flag, value) in arguments {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            flags.insert(flag.clone(), value);
        }
    }
    let flags = flags.into_iter().map(|(flag, value)| format!("--{flag}={value}"));
    Ok(std::iter::once("--cloud-provider=externalgrpc".to_owned()).chain(flags).collect())
}

fn deployment(flags: &[String]) -> Value {
    let labels = json!({ "app.kubernetes.io/name": "externalgrpc-cluster-autoscaler" });
    let files = "/etc/capi-autoscaler-provider";
    let mount = |name: &str, path: &str| json!({ "name": name, "mountPath": path, "readOnly": true });
    json!({
        "kind": "Deployment",
        "metadata": { "name": NAME },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "automountServiceAccountToken": false,
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": 65532,
                        "fsGroup": 65532,
                        "seccompProfile": { "type": "RuntimeDefault" },
                    },
                    "containers": [{
                        "name": NAME,
                        "image": IMAGE,
                        "imagePullPolicy": "Never",
                        "args": flags,
                        "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
                        "volumeMounts": [
                            mount("tls", &format!("{files}/tls")),
                            mount("config", &format!("{files}/config")),
                            mount("kubeconfig", "/etc/kubernetes"),
                        ],
                    }],
                    "volumes": [
                        { "name": "tls", "secret": { "secretName": format!("{RELEASE}-client") } },
                        { "name": "config", "configMap": { "name": format!("{RELEASE}-cloud-config") } },
                        { "name": "kubeconfig", "secret": { "secretName": "prod-kubeconfig" } },
                    ],
                },
            },
        },
    })
}
