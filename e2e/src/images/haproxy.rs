//! The image of the load balancer that CAPD puts before a control plane.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};

use super::{
    Docker,
    builder::{Build, Builder, key},
    debian::Rootfs,
};

/// The image as CAPD is asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoadBalancer {
    /// The part of its name before `/haproxy`.
    pub(crate) repository: &'static str,
    /// Its tag.
    pub(crate) tag: &'static str,
}

impl LoadBalancer {
    /// Returns its name in Docker's store.
    fn name(&self) -> String {
        format!("{}/haproxy:{}", self.repository, self.tag)
    }
}

/// The directory of its files.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/capd/load-balancer");

/// The label of an image that holds the key of its inputs.
const LABEL: &str = "io.capi-autoscaler-provider.inputs";

const IMAGE: LoadBalancer = LoadBalancer { repository: "capi-autoscaler-provider-e2e", tag: "e2e" };

const SYSTEM: Rootfs = Rootfs {
    name: "haproxy",
    suite: "bookworm",
    variant: "essential",
    packages: &["haproxy"],
    hooks: &["rm -rf \"$1\"/var/lib/apt \"$1\"/var/cache/apt \"$1\"/usr/share/doc \"$1\"/usr/share/man"],
};

/// Builds the image, unless Docker has it of the same inputs.
pub(super) async fn make(docker: Docker, directory: &Path) -> Result<LoadBalancer> {
    let name = IMAGE.name();
    let sources = Path::new(SOURCES);
    let [dockerfile, settings] = ["Dockerfile", "haproxy.cfg"].map(|file| fs::read(sources.join(file)));
    let inputs = key((SYSTEM, dockerfile?, settings?));
    if docker.inspect(&name).is_ok_and(|image| image["Config"]["Labels"][LABEL] == inputs.as_str()) {
        return Ok(IMAGE);
    }
    eprintln!("e2e: building the load balancer's image");
    let scratch = directory.join("haproxy-buildkit");
    let builder = Builder::start(&scratch).await?;
    let build = Build {
        dockerfile: sources.join("Dockerfile"),
        context: SYSTEM.make(directory)?,
        directories: vec![("sources", sources.to_owned())],
        bases: Vec::new(),
        arguments: vec![("INPUTS", inputs)],
    };
    let loaded = builder.load(&build, &name, docker);
    builder.stop().await?;
    fs::remove_dir_all(&scratch).with_context(|| format!("removing {}", scratch.display()))?;
    loaded?;
    Ok(IMAGE)
}
