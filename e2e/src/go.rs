//! Builds etcd, parts of Kubernetes, Cluster API's core, helm and promtool from the Go modules of this crate, once per
//! set of versions, and finds Cluster API's manifests.

mod module;

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

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

/// Builds programs of a module without anything else, and returns their directory.
fn programs(module: &Module, what: &str, packages: &[&str]) -> Result<PathBuf> {
    module.binaries(&Build { what, packages, files: &[], linker: "-s -w" })
}

/// Builds promtool from a module of its own, without service discovery: that is most of Prometheus' dependencies, and
/// no check uses it.
pub fn promtool() -> Result<PathBuf> {
    let packages = ["-tags=remove_all_sd", "github.com/prometheus/prometheus/cmd/promtool"];
    Ok(programs(&Module::at("promtool"), "promtool", &packages)?.join("promtool"))
}

/// Builds the judge of requests for certificates from a module of its own, with approver-policy's own evaluators.
pub fn approver_policy() -> Result<PathBuf> {
    let binaries = Module::at("approver-policy").binaries(&Build {
        what: "approver-policy's evaluators",
        packages: &["."],
        files: &["main.go"],
        linker: "-s -w",
    })?;
    Ok(binaries.join("approver-policy"))
}

/// The programs of a release that the tests start themselves.
#[derive(Debug)]
pub struct ReleasePrograms {
    /// crane, which serves a registry too.
    pub crane: PathBuf,
    /// cosign.
    pub cosign: PathBuf,
}

/// Builds crane and cosign.
pub fn release() -> Result<ReleasePrograms> {
    let packages = ["github.com/google/go-containerregistry/cmd/crane", "github.com/sigstore/cosign/v3/cmd/cosign"];
    let programs = programs(&Module::at("release"), "crane and cosign", &packages)?;
    Ok(ReleasePrograms { crane: programs.join("crane"), cosign: programs.join("cosign") })
}

/// Builds kube-router, which enforces NetworkPolicies.
pub fn kube_router() -> Result<PathBuf> {
    let packages = ["github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"];
    Ok(programs(&Module::at("kube-router"), "kube-router", &packages)?.join("kube-router"))
}

/// Returns the directory in which all that is built for these tests is kept.
pub(crate) fn cache() -> Result<PathBuf> {
    let programs = buildkit()?;
    Ok(programs.parent().context("a program without a directory")?.to_owned())
}

/// Builds BuildKit's daemon and client, and returns their directory.
pub(crate) fn buildkit() -> Result<PathBuf> {
    let packages = ["github.com/moby/buildkit/cmd/buildkitd", "github.com/moby/buildkit/cmd/buildctl"];
    programs(&Module::at("buildkit"), "BuildKit", &packages)
}

/// The programs of a node and of its components' images, by their directories.
pub(crate) struct NodePrograms {
    /// The version of Kubernetes.
    pub(crate) version: String,
    /// kubelet, kubeadm, kube-proxy and kube-controller-manager.
    pub(crate) kubernetes: PathBuf,
    /// etcd, kubectl, kube-apiserver and kube-scheduler.
    pub(crate) components: PathBuf,
    /// containerd, its shim and ctr.
    pub(crate) containerd: PathBuf,
    /// CoreDNS.
    pub(crate) coredns: PathBuf,
    /// The source of pause.
    pub(crate) pause: PathBuf,
}

/// Builds the programs of a node.
pub(crate) fn node_programs() -> Result<NodePrograms> {
    let module = Module::at("node");
    let version = module.version(KUBERNETES)?;
    let pinned = Module::at("").version(KUBERNETES)?;
    ensure!(version == pinned, "e2e/node/go.mod has Kubernetes {version} and e2e/go.mod {pinned}: make them one");
    let kubernetes = module.binaries(&Build {
        what: "kubelet, kubeadm and others",
        packages: &[
            "k8s.io/kubernetes/cmd/kubelet",
            "k8s.io/kubernetes/cmd/kubeadm",
            "k8s.io/kubernetes/cmd/kube-proxy",
            "k8s.io/kubernetes/cmd/kube-controller-manager",
        ],
        files: &[],
        linker: &kubernetes_version(&version)?,
    })?;
    let components = components()?.etcd.parent().context("etcd without a directory")?.to_owned();
    let packages = [
        "github.com/containerd/containerd/v2/cmd/containerd",
        "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
        "github.com/containerd/containerd/v2/cmd/ctr",
    ];
    let containerd = programs(&Module::at("containerd"), "containerd", &packages)?;
    let coredns = programs(&Module::at("coredns"), "CoreDNS", &["github.com/coredns/coredns"])?;
    let pause = module.source(KUBERNETES)?.join("build/pause/linux/pause.c");
    Ok(NodePrograms { version, kubernetes, components, containerd, coredns, pause })
}

/// kind, with the files of its own base image.
#[derive(Debug)]
pub struct Kind {
    /// The program.
    pub program: PathBuf,
    source: PathBuf,
}

impl Kind {
    /// Returns the directory of the files of a node.
    pub(crate) fn node_files(&self) -> PathBuf {
        self.source.join("images/base/files")
    }

    /// Returns the published node image of this version of kind, by its digest.
    pub(crate) fn published_node(&self) -> Result<String> {
        let path = self.source.join("pkg/apis/config/defaults/image.go");
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let image = text.split('"').find(|text| text.contains("@sha256:"));
        Ok(image.with_context(|| format!("no image in {}", path.display()))?.to_owned())
    }
}

/// clusterctl.
#[derive(Debug)]
pub struct Clusterctl {
    /// The program.
    pub program: PathBuf,
    /// The version of Cluster API.
    pub version: String,
}

/// Builds clusterctl.
pub fn clusterctl() -> Result<Clusterctl> {
    let module = Module::at("capd");
    let programs = programs(&module, "clusterctl", &["sigs.k8s.io/cluster-api/cmd/clusterctl"])?;
    Ok(Clusterctl { program: programs.join("clusterctl"), version: module.version(CLUSTER_API)? })
}

/// Builds kind.
pub fn kind() -> Result<Kind> {
    let module = Module::at("capd");
    let programs = programs(&module, "kind", &["sigs.k8s.io/kind"])?;
    Ok(Kind { program: programs.join("kind"), source: module.source("sigs.k8s.io/kind")? })
}
