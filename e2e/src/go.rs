//! Builds etcd, parts of Kubernetes, Cluster API's core, helm and promtool from the Go modules of this crate, once per
//! set of versions, and finds Cluster API's manifests.

mod module;

use std::path::PathBuf;

use anyhow::{Result, bail};

use self::module::{Build, Module};

const KUBERNETES: &str = "k8s.io/kubernetes";
const CLUSTER_API: &str = "sigs.k8s.io/cluster-api";
const HELM: &str = "helm.sh/helm/v4";

/// The paths of the binaries and manifests that the pinned Go modules provide.
#[derive(Debug)]
pub struct Components {
    /// The etcd server.
    pub etcd: PathBuf,
    /// The Kubernetes API server.
    pub kube_apiserver: PathBuf,
    /// The command-line client of the API server's version.
    pub kubectl: PathBuf,
    /// The scheduler of the API server's version.
    pub kube_scheduler: PathBuf,
    /// Cluster API's core: its controllers and webhooks.
    pub cluster_api: PathBuf,
    /// The directory of the core's manifests.
    pub manifests: PathBuf,
}

impl Components {
    /// Returns the directory of Cluster API's CRDs.
    #[must_use]
    pub fn crds(&self) -> PathBuf {
        self.manifests.join("crd/bases")
    }
}

/// Builds the missing components.
pub fn components() -> Result<Components> {
    let module = Module::at("");
    let binaries = module.binaries(&Build {
        what: "kube-apiserver, etcd, Cluster API and others",
        packages: &[
            "./cmd/etcd",
            "k8s.io/kubernetes/cmd/kube-apiserver",
            "k8s.io/kubernetes/cmd/kube-scheduler",
            "k8s.io/kubernetes/cmd/kubectl",
            "sigs.k8s.io/cluster-api/core",
        ],
        files: &["cmd/etcd/main.go"],
        linker: &kubernetes_version(&module.version(KUBERNETES)?)?,
    })?;
    Ok(Components {
        etcd: binaries.join("etcd"),
        kube_apiserver: binaries.join("kube-apiserver"),
        kubectl: binaries.join("kubectl"),
        kube_scheduler: binaries.join("kube-scheduler"),
        cluster_api: binaries.join("core"),
        manifests: module.source(CLUSTER_API)?.join("core/config"),
    })
}

/// Returns the linker flags that set a version: clients refuse a server whose version they cannot parse.
fn kubernetes_version(version: &str) -> Result<String> {
    let mut numbers = version.trim_start_matches('v').split('.');
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        bail!("{KUBERNETES} has the version {version}, which is not vMAJOR.MINOR.PATCH");
    };
    let variable = "-X k8s.io/component-base/version";
    Ok(format!("-s -w {variable}.gitVersion={version} {variable}.gitMajor={major} {variable}.gitMinor={minor}"))
}

/// Builds helm from a module of its own, since it needs other versions of Kubernetes' modules.
pub fn helm() -> Result<PathBuf> {
    let module = Module::at("helm");
    let binaries = module.binaries(&Build {
        what: "helm",
        packages: &["helm.sh/helm/v4/cmd/helm"],
        files: &[],
        linker: &format!("-s -w -X {HELM}/internal/version.version={}", module.version(HELM)?),
    })?;
    Ok(binaries.join("helm"))
}

/// Builds promtool from a module of its own, without service discovery: that is most of Prometheus' dependencies, and
/// no check uses it.
pub fn promtool() -> Result<PathBuf> {
    let binaries = Module::at("promtool").binaries(&Build {
        what: "promtool",
        packages: &["-tags=remove_all_sd", "github.com/prometheus/prometheus/cmd/promtool"],
        files: &[],
        linker: "-s -w",
    })?;
    Ok(binaries.join("promtool"))
}
