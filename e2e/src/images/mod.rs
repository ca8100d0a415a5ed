//! Makes the container images of clusters with real Nodes: the node image with all components, and the project's own.
//!
//! Where a registry is reached, the published node image and bases are taken. Elsewhere all is built from Debian
//! packages, pinned Go modules and the installed Rust, once per set of inputs, and kept outside the clone. Nothing here
//! may run as a part of plain `cargo test`: it needs root, Docker and a network.

mod builder;
mod command;
mod debian;
mod docker;
mod haproxy;
mod node;
mod project;

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

pub use self::{
    docker::Docker,
    project::{Image, REVISION, SOURCE},
};
use self::{haproxy::LoadBalancer, node::Node};
use crate::{go, process::output};

/// The environment variable that chooses the source of images: `published` or `built`. Without it they are built if
/// none can be pulled.
pub const VARIABLE: &str = "E2E_IMAGES";

/// The source of the node image and of the bases of the project's image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Published,
    Built,
}

/// The images, all in Docker's own store.
#[derive(Debug)]
pub struct Images {
    /// The image of a node, for kind.
    pub node: String,
    /// The image of this project.
    pub project: Image,
    source: Source,
    directory: PathBuf,
}

impl Images {
    /// Pulls or builds all images.
    pub async fn make() -> Result<Self> {
        let docker = Docker::running()?;
        let directory = directory()?;
        let kind = go::kind()?;
        let (source, node) = match asked()? {
            Some(Source::Built) => (Source::Built, None),
            Some(Source::Published) => (Source::Published, Some(kind.published_node()?)),
            None => match kind.published_node().and_then(|image| docker.pull(&image).map(|()| image)) {
                Ok(image) => (Source::Published, Some(image)),
                Err(error) => {
                    eprintln!("e2e: building all images, since none can be pulled: {error:#}");
                    (Source::Built, None)
                }
            },
        };
        let node = match node {
            Some(image) => {
                docker.pull(&image)?;
                image
            }
            None => Node::new(docker, &directory, &kind)?.make().await?,
        };
        let project = project::make(docker, &directory, source, project::Goal::Loaded).await?;
        Ok(Self { node, project, source, directory })
    }

    /// Returns the version of Kubernetes in the node image.
    pub fn version(&self) -> Result<&str> {
        let name = self.node.split('@').next().unwrap_or_default();
        let version = name.rsplit_once(':').map(|(_, version)| version);
        version.with_context(|| format!("the node image {} has no tag", self.node))
    }

    /// Returns true if the bases of the project's image were built, not pulled.
    pub fn has_built_bases(&self) -> bool {
        self.source == Source::Built
    }

    /// Builds the load balancer of CAPD's control planes, or returns `None` where CAPD pulls its own.
    pub(crate) async fn load_balancer(&self) -> Result<Option<LoadBalancer>> {
        match self.source {
            Source::Published => Ok(None),
            Source::Built => haproxy::make(Docker::running()?, &self.directory).await.map(Some),
        }
    }

    /// Makes an image of the project's own, with another program in its place, which must link to nothing else.
    pub(crate) fn with_program(&self, program: &Path, name: &str) -> Result<()> {
        let docker = Docker::running()?;
        let file = program.file_name().with_context(|| format!("{} is no file", program.display()))?.display();
        let container = docker.run(&["create", &self.project.name])?;
        let container = container.trim();
        let target = format!("/usr/local/bin/{file}");
        let copied = docker.run(&["cp", &program.display().to_string(), &format!("{container}:{target}")]);
        let entry = format!("ENTRYPOINT [\"{target}\"]");
        let committed =
            copied.and_then(|_| docker.run(&["commit", "--change", &entry, "--change", "CMD []", container, name]));
        docker.run(&["rm", container])?;
        committed.map(drop)
    }

    /// Pushes the project's image with its provenance to a registry of this machine, without a tag.
    pub async fn push_project(&self, name: &str) -> Result<Image> {
        project::make(Docker::running()?, &self.directory, self.source, project::Goal::Pushed(name)).await
    }

    /// Builds the project's image once more from nothing, and returns it without loading it.
    pub async fn project_anew(&self) -> Result<Image> {
        let docker = Docker::running()?;
        project::make(docker, &self.directory, self.source, project::Goal::Fresh).await
    }
}

/// Returns the source that the environment names.
fn asked() -> Result<Option<Source>> {
    match env::var(VARIABLE).unwrap_or_default().as_str() {
        "" => Ok(None),
        "published" => Ok(Some(Source::Published)),
        "built" => Ok(Some(Source::Built)),
        other => bail!("{VARIABLE} is {other:?}: set it to published or built, or leave it out"),
    }
}

/// Returns the directory of what is kept between runs, beside the built Go programs.
fn directory() -> Result<PathBuf> {
    let directory = go::cache()?.join("images");
    fs::create_dir_all(&directory)?;
    Ok(directory)
}
