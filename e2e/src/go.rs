//! Builds etcd, parts of Kubernetes and Cluster API's core from the Go module beside this crate, once per set of versions, and finds
//! Cluster API's manifests.
//!
//! The binaries are kept outside the clone, under a key made of everything that they are built from. Whoever comes while they are
//! being built waits for them.

use std::{
    env,
    ffi::OsStr,
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, anyhow, bail, ensure};

const MISSING: &str = "e2e needs Go 1.26 or later on PATH to build kube-apiserver, etcd and others: \
    install it from go.dev, or run `cargo test` for the tests that need Rust and a C compiler only";

const KUBERNETES: &str = "k8s.io/kubernetes";
const CLUSTER_API: &str = "sigs.k8s.io/cluster-api";

/// What the pinned Go modules provide.
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
    /// The directory of Cluster API's CRDs.
    #[must_use]
    pub fn crds(&self) -> PathBuf {
        self.manifests.join("crd/bases")
    }
}

/// What is built, as packages.
const PACKAGES: [&str; 5] = [
    "./cmd/etcd",
    "k8s.io/kubernetes/cmd/kube-apiserver",
    "k8s.io/kubernetes/cmd/kube-scheduler",
    "k8s.io/kubernetes/cmd/kubectl",
    "sigs.k8s.io/cluster-api/core",
];

/// Builds what is not built yet.
pub fn components() -> Result<Components> {
    let module = Path::new(env!("CARGO_MANIFEST_DIR"));
    let version = go(module, ["version"])?;
    let binaries = cache_directory()?.join(key(module, &version)?);
    let lock = lock(&binaries)?;
    if !binaries.exists() {
        build(module, &binaries)?;
    }
    lock.unlock()?;
    Ok(Components {
        etcd: binaries.join("etcd"),
        kube_apiserver: binaries.join("kube-apiserver"),
        kubectl: binaries.join("kubectl"),
        kube_scheduler: binaries.join("kube-scheduler"),
        cluster_api: binaries.join("core"),
        manifests: module_directory(module, CLUSTER_API)?.join("core/config"),
    })
}

/// Builds into a directory beside `binaries` and renames it, so that what is there is complete.
fn build(module: &Path, binaries: &Path) -> Result<()> {
    eprintln!("e2e: building kube-apiserver, etcd, Cluster API and others; the first time takes some minutes");
    let version = module_version(module, KUBERNETES)?;
    let mut numbers = version.trim_start_matches('v').split('.');
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        bail!("{KUBERNETES} has the version {version}, which is not vMAJOR.MINOR.PATCH");
    };
    // Clients refuse to talk to a server whose version they cannot read.
    let variable = "-X k8s.io/component-base/version";
    let flags =
        format!("-s -w {variable}.gitVersion={version} {variable}.gitMajor={major} {variable}.gitMinor={minor}");
    let unfinished = binaries.with_extension("unfinished");
    fs::create_dir_all(&unfinished)?;
    let status = go_command(module)
        .args(["build", "-trimpath", "-buildvcs=false", "-ldflags"])
        .arg(flags)
        .arg("-o")
        .arg(format!("{}/", unfinished.display()))
        .args(PACKAGES)
        .stdin(Stdio::null())
        .status()?;
    ensure!(status.success(), "building kube-apiserver, etcd, Cluster API and others: go build: {status}");
    fs::rename(&unfinished, binaries)?;
    Ok(())
}

/// A lock held by one builder at a time, over all processes of this user.
fn lock(binaries: &Path) -> Result<File> {
    let path = binaries.with_extension("lock");
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let file = File::create(&path)?;
    file.lock().with_context(|| format!("locking {}", path.display()))?;
    Ok(file)
}

/// `$XDG_CACHE_HOME`, or `~/.cache`, with the project's name.
fn cache_directory() -> Result<PathBuf> {
    let base = env::var_os("XDG_CACHE_HOME")
        .filter(|directory| !directory.is_empty())
        .map(PathBuf::from)
        .or_else(|| Some(env::home_dir()?.join(".cache")))
        .context("no home directory to keep built components in: set XDG_CACHE_HOME")?;
    Ok(base.join("capi-autoscaler-provider/e2e"))
}

/// A name for everything that the binaries are built from: this file holds the build's flags.
fn key(module: &Path, version: &str) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    version.hash(&mut hasher);
    for file in ["go.mod", "go.sum", "cmd/etcd/main.go", "src/go.rs"] {
        fs::read(module.join(file)).with_context(|| format!("reading {file}"))?.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

/// The directory of a required module, downloaded when it is not there.
fn module_directory(module: &Path, path: &str) -> Result<PathBuf> {
    let answer = go(module, ["mod", "download", "-json", path])?;
    let answer: serde_json::Value = serde_json::from_str(&answer)?;
    answer["Dir"].as_str().map(PathBuf::from).with_context(|| format!("no directory of {path} in {answer}"))
}

fn module_version(module: &Path, path: &str) -> Result<String> {
    let answer = go(module, ["list", "-m", "-f", "{{.Version}}", path])?;
    Ok(answer.trim().to_owned())
}

/// Runs go in the module and returns what it prints.
fn go<A: AsRef<OsStr>>(module: &Path, arguments: impl IntoIterator<Item = A>) -> Result<String> {
    let output =
        go_command(module).args(arguments).stdin(Stdio::null()).output().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => anyhow!(MISSING),
            _ => anyhow!(error).context("running go"),
        })?;
    ensure!(output.status.success(), "go: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn go_command(module: &Path) -> Command {
    let mut command = Command::new("go");
    command.current_dir(module).env("CGO_ENABLED", "0");
    command
}
