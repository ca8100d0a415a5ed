//! The image of a node, with the images of all components in it.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use super::{
    Docker,
    builder::{Build, Builder, key, sources},
    debian::Rootfs,
    output,
};
use crate::go::{self, Kind, NodePrograms};

/// The label of an image that holds the key of its inputs.
const LABEL: &str = "io.capi-autoscaler-provider.inputs";

/// The node: systemd 252 runs with cgroup v1 and v2, later ones with v2 only.
const SYSTEM: Rootfs = Rootfs {
    name: "node",
    suite: "bookworm",
    variant: "essential",
    packages: &[
        "ca-certificates",
        "conntrack",
        "containernetworking-plugins",
        "dbus",
        "ethtool",
        "iproute2",
        "ipset",
        "iptables",
        "jq",
        "kmod",
        "mount",
        "procps",
        "runc",
        "systemd",
        "util-linux",
    ],
    hooks: &["rm -rf \"$1\"/var/lib/apt \"$1\"/var/cache/apt \"$1\"/usr/share/doc \"$1\"/usr/share/man"],
};

/// kube-proxy's image, whose iptables are those of nftables, as the node's.
const PROXY: Rootfs = Rootfs {
    name: "kube-proxy",
    suite: "bookworm",
    variant: "extract",
    packages: &["conntrack", "iptables", "kmod"],
    hooks: &[
        "for program in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do \
            ln -sf xtables-nft-multi \"$1/usr/sbin/$program\"; done",
        "rm -rf \"$1\"/usr/share",
    ],
};

/// The node image to be made.
pub(super) struct Node<'a> {
    docker: Docker,
    directory: &'a Path,
    kind: &'a Kind,
    programs: NodePrograms,
}

impl<'a> Node<'a> {
    pub(super) fn new(docker: Docker, directory: &'a Path, kind: &'a Kind) -> Result<Self> {
        Ok(Self { docker, directory, kind, programs: go::node_programs()? })
    }

    /// Returns the name of the image in Docker's store, and builds it if the one there is of other inputs.
    pub(super) async fn make(&self) -> Result<String> {
        let name = format!("capi-autoscaler-provider-e2e/node:{}", self.programs.version);
        let inputs = self.inputs()?;
        let there = self.docker.inspect(&name).ok();
        if there.is_some_and(|image| image["Config"]["Labels"][LABEL] == inputs.as_str()) {
            return Ok(name);
        }
        eprintln!("e2e: building the node image");
        // Docker keeps the result, so that nothing else has to stay.
        let scratch = self.directory.join("node-buildkit");
        let builder = Builder::start(&scratch).await?;
        let built = self.build(&builder, &name, &inputs);
        builder.stop().await?;
        fs::remove_dir_all(&scratch).with_context(|| format!("removing {}", scratch.display()))?;
        built?;
        Ok(name)
    }

    /// Returns a key of all inputs.
    fn inputs(&self) -> Result<String> {
        let mut files = Vec::new();
        for directory in [sources(), self.kind.node_files()] {
            read_all(&directory, &directory, &mut files)?;
        }
        let programs = &self.programs;
        let built = [&programs.kubernetes, &programs.containerd, &programs.coredns, &programs.components];
        Ok(key((files, built, SYSTEM, PROXY, include_str!("node.rs"), include_str!("builder.rs"))))
    }

    fn build(&self, builder: &Builder, name: &str, inputs: &str) -> Result<()> {
        let staged = tempfile::tempdir_in(self.directory)?;
        let archives = staged.path().join("archives");
        fs::create_dir(&archives)?;
        let kubeadm = self.programs.kubernetes.join("kubeadm");
        let version = &self.programs.version;
        let listed = output(Command::new(kubeadm).args(["config", "images", "list", "--kubernetes-version", version]))?;
        let mut pause = None;
        for image in listed.lines() {
            let component = image.rsplit('/').next().and_then(|last| last.split(':').next()).unwrap_or_default();
            let build = self.component(component, staged.path())?;
            builder.archive(&build, image, &archives.join(format!("{component}.tar")))?;
            if component == "pause" {
                pause = Some(image.to_owned());
            }
        }
        let build = Build {
            dockerfile: sources().join("node.Dockerfile"),
            context: SYSTEM.make(self.directory)?,
            directories: vec![
                ("kind", self.kind.node_files()),
                ("node", sources().join("node")),
                ("containerd", self.programs.containerd.clone()),
                ("kubernetes", self.programs.kubernetes.clone()),
                ("kubectl", self.programs.components.clone()),
                ("images", archives),
            ],
            bases: Vec::new(),
            arguments: vec![
                ("VERSION", version.clone()),
                ("PAUSE", pause.with_context(|| format!("kubeadm names no pause among {listed}"))?),
                ("INPUTS", inputs.to_owned()),
            ],
        };
        builder.load(&build, name, self.docker)?;
        Ok(())
    }

    /// Returns the build of a component's image.
    fn component(&self, component: &str, staged: &Path) -> Result<Build<'static>> {
        let programs = &self.programs;
        let (file, directory): (_, PathBuf) = match component {
            "etcd" | "kube-apiserver" | "kube-scheduler" => ("component.Dockerfile", programs.components.clone()),
            "kube-controller-manager" => ("component.Dockerfile", programs.kubernetes.clone()),
            "kube-proxy" => ("kube-proxy.Dockerfile", programs.kubernetes.clone()),
            "coredns" => ("coredns.Dockerfile", programs.coredns.clone()),
            "pause" => ("pause.Dockerfile", compile_pause(&programs.pause, staged)?),
            other => anyhow::bail!("kubeadm names the image {other}, which nothing here builds: add it"),
        };
        let context = if component == "kube-proxy" { PROXY.make(self.directory)? } else { staged.to_owned() };
        Ok(Build {
            dockerfile: sources().join(file),
            context,
            directories: vec![("programs", directory)],
            bases: Vec::new(),
            arguments: vec![("PROGRAM", component.to_owned())],
        })
    }
}

/// Compiles Kubernetes' own source of pause, and returns the directory of the program.
fn compile_pause(source: &Path, staged: &Path) -> Result<PathBuf> {
    let directory = staged.join("pause");
    fs::create_dir_all(&directory)?;
    let mut command = Command::new("cc");
    command.args(["-Os", "-static", "-DVERSION=e2e"]).arg(source).arg("-o").arg(directory.join("pause"));
    output(&mut command)?;
    Ok(directory)
}

/// Reads all files below a directory with their paths in `root` and modes, in order.
fn read_all(root: &Path, directory: &Path, files: &mut Vec<(String, u32, Vec<u8>)>) -> Result<()> {
    let entries = fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    ensure!(!paths.is_empty(), "{} is empty", directory.display());
    paths.sort();
    for path in paths {
        if path.is_dir() {
            read_all(root, &path, files)?;
        } else {
            let mode = fs::metadata(&path)?.permissions().mode();
            files.push((path.strip_prefix(root)?.display().to_string(), mode, fs::read(&path)?));
        }
    }
    Ok(())
}
