//! BuildKit as a process of its own, from its pinned Go module: it builds the same with any version of Docker, and
//! takes bases by digest from directories, without a registry.

use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{Docker, command::pipe, output};
use crate::{
    go,
    process::Process,
    wait::{SOON, every},
};

/// The time of everything in an image, in seconds since 1970, so that the same inputs give the same digest.
pub(super) const EPOCH: &str = "0";

/// The bytes of finished build steps that are kept at most, in megabytes.
const KEPT: &str = "4000";

/// Returns a key of inputs, for names of files.
pub(super) fn key(inputs: impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    inputs.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Returns the directory of this crate's files for images.
pub(super) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("images")
}

/// A running BuildKit. `stop` ends it; dropping it kills it.
pub(super) struct Builder {
    process: Process,
    buildctl: PathBuf,
    address: String,
    _lock: File,
}

/// An image to build.
pub(super) struct Build<'a> {
    /// The Dockerfile.
    pub(super) dockerfile: PathBuf,
    /// The directory of its `COPY` and `ADD`.
    pub(super) context: PathBuf,
    /// Directories that it names in `COPY --from`.
    pub(super) directories: Vec<(&'a str, PathBuf)>,
    /// Images that it names in `FROM`.
    pub(super) bases: Vec<(&'a str, &'a Layout)>,
    /// Build arguments.
    pub(super) arguments: Vec<(&'a str, String)>,
}

/// An image in a directory of OCI's layout.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    directory: PathBuf,
    digest: String,
}

impl Builder {
    /// Starts BuildKit with its data in `root`. Another run that uses the same is waited for.
    pub(super) async fn start(root: &Path) -> Result<Self> {
        fs::create_dir_all(root)?;
        let lock = File::create(root.with_extension("lock"))?;
        lock.lock().with_context(|| format!("locking {}", root.display()))?;
        let programs = go::buildkit()?;
        // A path of a socket may have about 100 letters.
        let address = format!("unix:///run/capi-e2e-buildkit-{}.sock", key(root));
        let mut command = Command::new(programs.join("buildkitd"));
        command.arg("--root").arg(root).args(["--addr", &address]);
        command.args(["--containerd-worker=false", "--oci-worker-net=host", "--oci-worker-gc-keepstorage", KEPT]);
        let process = Process::start("buildkitd", command, &root.with_extension("log"))?;
        let mut builder = Self { process, buildctl: programs.join("buildctl"), address, _lock: lock };
        every(Duration::from_millis(200), "BuildKit", SOON, async || {
            builder.process.still_running()?;
            output(builder.buildctl().args(["debug", "workers"]))
        })
        .await?;
        Ok(builder)
    }

    /// Ends it.
    pub(super) async fn stop(mut self) -> Result<()> {
        self.process.terminate()?;
        self.process.ended(SOON).await?;
        Ok(())
    }

    /// Builds a base, unless the directory is there.
    pub(super) fn base(&self, build: &Build<'_>, directory: &Path) -> Result<Layout> {
        if !directory.exists() {
            let unfinished = directory.with_extension("unfinished");
            let exporter = format!("type=oci,tar=false,compression=zstd,dest={}", unfinished.display());
            output(&mut self.command(build, &exporter))?;
            fs::rename(&unfinished, directory)?;
        }
        Layout::read(directory)
    }

    /// Builds an archive that containerd can import under this name.
    pub(super) fn archive(&self, build: &Build<'_>, name: &str, path: &Path) -> Result<()> {
        let exporter = format!("type=oci,compression=zstd,compression-level=1,name={name},dest={}", path.display());
        output(&mut self.command(build, &exporter))?;
        Ok(())
    }

    /// Builds an image into Docker's own store, and returns its digest.
    pub(super) fn load(&self, build: &Build<'_>, name: &str, docker: Docker) -> Result<String> {
        let metadata = tempfile::NamedTempFile::new()?;
        // Docker stores layers uncompressed, and older ones can't read those of a base in zstd.
        let mut command =
            self.command(build, &format!("type=docker,name={name},compression=uncompressed,force-compression=true"));
        command.arg("--metadata-file").arg(metadata.path());
        pipe(&mut command, docker.command().args(["load", "--quiet"]))?;
        digest(metadata.path())
    }

    /// Builds an image with its provenance, pushes it to a registry of this machine without a tag, and returns its
    /// digest.
    pub(super) fn push(&self, build: &Build<'_>, name: &str) -> Result<String> {
        let metadata = tempfile::NamedTempFile::new()?;
        let exporter = format!(
            "type=image,name={name},push=true,push-by-digest=true,name-canonical=true,store=false,registry.insecure=true"
        );
        let mut command = self.command(build, &exporter);
        output(command.arg("--opt=attest:provenance=mode=max").arg("--metadata-file").arg(metadata.path()))?;
        digest(metadata.path())
    }

    /// Builds an image, and returns its digest only.
    pub(super) fn digest(&self, build: &Build<'_>, name: &str) -> Result<String> {
        let metadata = tempfile::NamedTempFile::new()?;
        let exporter =
            format!("type=docker,name={name},compression=uncompressed,force-compression=true,dest=/dev/null");
        output(self.command(build, &exporter).arg("--metadata-file").arg(metadata.path()))?;
        digest(metadata.path())
    }

    fn buildctl(&self) -> Command {
        let mut command = Command::new(&self.buildctl);
        command.args(["--addr", &self.address]);
        command
    }

    fn command(&self, build: &Build<'_>, exporter: &str) -> Command {
        let mut command = self.buildctl();
        command.args(["build", "--progress=plain", "--frontend=dockerfile.v0"]);
        let (directory, file) = (build.dockerfile.parent(), build.dockerfile.file_name());
        let file = file.unwrap_or_default().display();
        command.arg(format!("--local=dockerfile={}", directory.unwrap_or(Path::new(".")).display()));
        command.arg(format!("--opt=filename={file}"));
        command.arg(format!("--local=context={}", build.context.display()));
        for (name, directory) in &build.directories {
            command.arg(format!("--local={name}={}", directory.display()));
            command.arg(format!("--opt=context:{name}=local:{name}"));
        }
        for (name, layout) in &build.bases {
            command.arg(format!("--oci-layout={name}={}", layout.directory.display()));
            command.arg(format!("--opt=context:{name}=oci-layout://{name}@{}", layout.digest));
        }
        for (name, value) in &build.arguments {
            command.arg(format!("--opt=build-arg:{name}={value}"));
        }
        command.arg(format!("--opt=build-arg:SOURCE_DATE_EPOCH={EPOCH}"));
        command.arg(format!("--output={exporter},rewrite-timestamp=true"));
        command
    }
}

impl Layout {
    fn read(directory: &Path) -> Result<Self> {
        let index = directory.join("index.json");
        let text = fs::read_to_string(&index).with_context(|| format!("reading {}", index.display()))?;
        let index: Value = serde_json::from_str(&text)?;
        let digest = index["manifests"][0]["digest"].as_str().with_context(|| format!("no digest in {index}"))?;
        Ok(Self { directory: directory.to_owned(), digest: digest.to_owned() })
    }
}

/// Returns the image's digest from what buildctl has written about a build.
fn digest(metadata: &Path) -> Result<String> {
    let metadata: Value = serde_json::from_str(&fs::read_to_string(metadata)?)?;
    let digest = metadata["containerimage.digest"].as_str().with_context(|| format!("no digest in {metadata}"))?;
    ensure!(digest.starts_with("sha256:"), "{digest} is no digest");
    Ok(digest.to_owned())
}
