//! A release as the workflow makes it, by the same steps of `.ci/release`, on a registry of this machine and with a key
//! instead of a workflow's identity. The kubelet then pulls by digest what the chart names.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use e2e::{
    go::{self, ReleasePrograms},
    helm::RELEASE,
    nodes::{POLL_INTERVAL, Testbed, create_group},
    process::{Process, output, refusal},
    wait::every,
};
use serde_json::Value;

use crate::pod::VISIBLE_WITHIN;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A registry on the network of the Node, with its key.
struct Registry {
    programs: ReleasePrograms,
    address: String,
    key: PathBuf,
    _process: Process,
}

impl Registry {
    async fn start(testbed: &Testbed<'_>) -> Result<Self> {
        let programs = go::release()?;
        let mut command = Command::new(&programs.crane);
        command.args(["registry", "serve", "--address", &format!("{}:0", testbed.cluster.gateway()?)]);
        let mut process = Process::start("registry", command, &testbed.logs.join("registry.log"))?;
        let port = every(POLL_INTERVAL, "the registry", VISIBLE_WITHIN, async || {
            process.still_running()?;
            let output = process.output();
            let port = output.lines().find_map(|line| line.split_once("serving on port ")).context("no port yet")?;
            Ok(port.1.trim().to_owned())
        })
        .await?;
        let address = format!("{}:{port}", testbed.cluster.gateway()?);
        let key = testbed.logs.join("keys/cosign.key");
        let registry = Self { programs, address, key, _process: process };
        registry.make_key(&registry.key)?;
        Ok(registry)
    }

    fn make_key(&self, key: &Path) -> Result<()> {
        let directory = key.parent().context("a key without a directory")?;
        fs::create_dir_all(directory)?;
        let mut command = Command::new(&self.programs.cosign);
        output(command.arg("generate-key-pair").env("COSIGN_PASSWORD", "").current_dir(directory)).map(drop)
    }

    fn script(key: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(Path::new(REPOSITORY).join(".ci/release"));
        command.args(arguments).env("PLAIN_HTTP", "1").env("SIGNING_KEY", key).env("COSIGN_PASSWORD", "");
        command
    }

    /// Runs a step of a release, and returns what it prints.
    fn step(&self, arguments: &[&str]) -> Result<String> {
        Ok(output(&mut Self::script(&self.key, arguments))?.trim().to_owned())
    }

    /// Runs a step that must be refused, and returns its message.
    fn refused(key: &Path, arguments: &[&str]) -> Result<String> {
        refusal(&mut Self::script(key, arguments))
    }

    /// Returns the tags of a repository, without those by which signatures are found.
    fn tags(&self, repository: &str) -> Result<Vec<String>> {
        let output = Command::new(&self.programs.crane).args(["ls", "--insecure", repository]).output()?;
        let tags = String::from_utf8(output.stdout)?;
        Ok(tags.lines().filter(|tag| !tag.starts_with("sha256-")).map(str::to_owned).collect())
    }

    fn manifest(&self, reference: &str) -> Result<Value> {
        let manifest = output(Command::new(&self.programs.crane).args(["manifest", "--insecure", reference]))?;
        Ok(serde_json::from_str(&manifest)?)
    }
}

pub(crate) async fn image_and_chart_are_signed_before_they_have_a_tag_and_installed_by_digest(
    testbed: &Testbed<'_>,
) -> Result<()> {
    let registry = Registry::start(testbed).await?;
    registry.step(&["check"])?;
    ensure!(registry.step(&["notes", VERSION])?.contains("### Added"), "the notes say nothing of what is there");

    let repository = format!("{}/capi-autoscaler-provider", registry.address);
    let digest = testbed.cluster.images.push_project(&repository).await?.digest;
    let image = format!("{repository}@{digest}");
    let directory = testbed.logs.join("package");
    let archives = registry.step(&["package", VERSION, &repository, &digest, &directory.display().to_string()])?;
    let (archive, of_cluster) = archives.split_once('\n').context("one archive instead of two")?;
    let charts = format!("{}/charts", registry.address);
    let chart_repository = format!("{charts}/capi-autoscaler-provider");
    let chart = format!("{chart_repository}@{}", registry.step(&["push", archive, &charts])?);
    let cluster_repository = format!("{charts}/capi-autoscaler-cluster");
    let cluster_chart = format!("{cluster_repository}@{}", registry.step(&["push", of_cluster, &charts])?);
    let subjects = [(&image, &repository), (&chart, &chart_repository), (&cluster_chart, &cluster_repository)];

    let index = registry.manifest(&image)?;
    let manifests = index["manifests"].as_array().context("the image has no index")?;
    let of = |kind: &str| {
        let found = manifests.iter().find(|one| {
            (one["annotations"]["vnd.docker.reference.type"] == "attestation-manifest") == (kind == "provenance")
        });
        found.and_then(|one| one["digest"].as_str()).with_context(|| format!("no {kind} in {index}"))
    };
    of("provenance")?;
    let inside = testbed.logs.join("image.spdx.json");
    let architecture = if cfg!(target_arch = "aarch64") { "linux/arm64" } else { "linux/amd64" };
    registry.step(&["sbom", &image, architecture, VERSION, &inside.display().to_string()])?;
    let message =
        Registry::refused(&registry.key, &["sbom", &image, architecture, "9.8.7", &inside.display().to_string()])?;
    ensure!(message.contains(&format!("is of version {VERSION}, not 9.8.7")), "{message}");

    // None gets a tag, by which it could be pulled, before it is signed.
    for (subject, repository) in subjects {
        for step in [&["verify", subject][..], &["tag", subject, VERSION]] {
            let message = Registry::refused(&registry.key, step)?;
            ensure!(message.contains("give it no tag"), "{step:?}: {message}");
        }
        ensure!(registry.tags(repository)?.is_empty(), "{repository} has tags: {:?}", registry.tags(repository)?);
        registry.step(&["sign", subject])?;
        registry.step(&["verify", subject])?;
        ensure!(registry.tags(repository)?.is_empty(), "signing gives a tag: {:?}", registry.tags(repository)?);
    }
    let other = testbed.logs.join("other/cosign.key");
    registry.make_key(&other)?;
    Registry::refused(&other, &["verify", &image])?;
    for (subject, repository) in subjects {
        registry.step(&["tag", subject, VERSION])?;
        ensure!(registry.tags(repository)? == [VERSION], "{repository} has {:?}", registry.tags(repository)?);
    }
    // The image of one platform is signed too, but the tag already names the index.
    let platform = format!("{repository}@{}", of("platform")?);
    let message = Registry::refused(&registry.key, &["tag", &platform, VERSION])?;
    ensure!(message.contains(&format!("{repository}:{VERSION} is {digest} already")), "{message}");

    installed(testbed, &registry, &chart_repository, &image).await
}

/// Installs the chart from the registry, where the kubelet pulls the image from.
async fn installed(testbed: &Testbed<'_>, registry: &Registry, chart: &str, image: &str) -> Result<()> {
    let hosts = format!("/etc/containerd/certs.d/{0}", registry.address);
    let plain = format!("[host.\"http://{}\"]\n  capabilities = [\"pull\", \"resolve\"]\n", registry.address);
    let script = format!("mkdir -p '{hosts}' && cat >'{hosts}/hosts.toml' <<'EOF'\n{plain}EOF");
    testbed.cluster.on_node(&["sh", "-c", &script])?;
    let group = create_group(&testbed.objects, "workers", 1).await?;
    let release = testbed.release();
    let (from, version) = (format!("oci://{chart}"), format!("--version={VERSION}"));
    let values = ["--set=clusterAPIMode=incluster-incluster", "--set=autoDiscovery.clusterName=prod"];
    release.helm(&[&["install", RELEASE, &from, &version, "--plain-http"], &values[..]].concat())?;
    for pod in release.settled().await? {
        let statuses = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
        let status = statuses.first().context("a Pod without containers")?;
        ensure!(status.image_id == image, "a Pod runs {}, not {image}", status.image_id);
    }
    release.connection().await?.caller().shows(&[&group.id]).await
}
