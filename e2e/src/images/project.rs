//! The project's own image, from its Dockerfile.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::{
    Docker, Source,
    builder::{Build, Builder, Layout, key, sources},
    debian::Rootfs,
    output,
};

/// The name of the image in Docker's store.
const NAME: &str = "capi-autoscaler-provider:e2e";

/// The version in the label of the image.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The source in the label of the image. It names no place, since the image is of this clone.
pub const SOURCE: &str = "https://example.com/capi-autoscaler-provider";

/// The revision in the label of the image. It is no commit, so that one that changes no input gives the same image.
pub const REVISION: &str = "local";

/// Debian for both bases: a C compiler, beside the installed Rust, and the libraries that the program links to.
const DEBIAN: Rootfs = Rootfs {
    name: "trixie",
    suite: "trixie",
    variant: "essential",
    packages: &["ca-certificates", "gcc", "libc6-dev"],
    hooks: &["rm -rf \"$1\"/var/lib/apt \"$1\"/var/cache/apt \"$1\"/usr/share/doc \"$1\"/usr/share/man"],
};

/// The project's image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its name in Docker's store.
    pub name: String,
    /// The digest of its manifest.
    pub digest: String,
}

/// The use of earlier builds, and the place of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal<'a> {
    /// Steps and compiled crates are kept between builds, and the result is loaded into Docker.
    Loaded,
    /// The same, and the result is pushed to a registry under this name, without a tag.
    Pushed(&'a str),
    /// Everything is built from nothing, and only the digest of the result is used.
    Fresh,
}

/// Builds the image.
pub(super) async fn make(docker: Docker, directory: &Path, source: Source, goal: Goal<'_>) -> Result<Image> {
    let bases = match source {
        Source::Published => None,
        Source::Built => Some(bases(directory).await?),
    };
    eprintln!("e2e: building the project's image");
    let root = directory.join(if goal == Goal::Fresh { "anew-buildkit" } else { "buildkit" });
    if goal == Goal::Fresh && root.exists() {
        // A killed run has left it.
        fs::remove_dir_all(&root)?;
    }
    let builder = Builder::start(&root).await?;
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut build = Build {
        dockerfile: repository.join("Dockerfile"),
        context: repository,
        directories: Vec::new(),
        bases: Vec::new(),
        arguments: [("VERSION", VERSION), ("SOURCE", SOURCE), ("REVISION", REVISION)]
            .map(|(name, value)| (name, value.to_owned()))
            .into(),
    };
    if let Some((compiler, runtime)) = &bases {
        build.bases = vec![("builder", compiler), ("runtime", runtime)];
        build.arguments.extend([("BUILDER", "builder".to_owned()), ("RUNTIME", "runtime".to_owned())]);
    }
    let digest = match goal {
        Goal::Loaded => builder.load(&build, NAME, docker),
        Goal::Pushed(name) => builder.push(&build, name),
        Goal::Fresh => builder.digest(&build, NAME),
    };
    builder.stop().await?;
    if goal == Goal::Fresh {
        fs::remove_dir_all(&root).with_context(|| format!("removing {}", root.display()))?;
    }
    let name = if let Goal::Pushed(name) = goal { name } else { NAME };
    Ok(Image { name: name.to_owned(), digest: digest? })
}

/// Returns the bases of the Dockerfile, and builds them if they are missing.
async fn bases(directory: &Path) -> Result<(Layout, Layout)> {
    let sysroot = PathBuf::from(output(Command::new("rustc").args(["--print", "sysroot"]))?.trim());
    let rust = output(Command::new("rustc").arg("-vV"))?;
    let certificates = certificates()?;
    let files = ["builder.Dockerfile", "runtime.Dockerfile"].map(|file| fs::read(sources().join(file)));
    let [compiler, runtime] = files;
    let compiler = directory.join(format!("base-{}", key((DEBIAN, compiler?, rust, &certificates))));
    let runtime = directory.join(format!("base-{}", key((DEBIAN, runtime?))));

    // Only the results are kept.
    let scratch = directory.join("bases-buildkit");
    let builder = Builder::start(&scratch).await?;
    let built = build_bases(&builder, directory, &sysroot, &certificates, [&compiler, &runtime]);
    builder.stop().await?;
    fs::remove_dir_all(&scratch).with_context(|| format!("removing {}", scratch.display()))?;
    built
}

fn build_bases(
    builder: &Builder,
    directory: &Path,
    sysroot: &Path,
    certificates: &[u8],
    layouts: [&Path; 2],
) -> Result<(Layout, Layout)> {
    let base = |file: &str, context: PathBuf, directories| Build {
        dockerfile: sources().join(file),
        context,
        directories,
        bases: Vec::new(),
        arguments: Vec::new(),
    };
    let [compiler, runtime] = layouts;
    let machine = tempfile::tempdir_in(directory)?;
    fs::write(machine.path().join("certificates.pem"), certificates)?;
    let directories = vec![
        ("machine", machine.path().to_owned()),
        ("rust-bin", sysroot.join("bin")),
        ("rust-lib", sysroot.join("lib")),
    ];
    let compiler = builder.base(&base("builder.Dockerfile", DEBIAN.make(directory)?, directories), compiler)?;
    let runtime = builder.base(&base("runtime.Dockerfile", DEBIAN.make(directory)?, Vec::new()), runtime)?;
    Ok((compiler, runtime))
}

/// Returns the certificate authorities that this machine trusts.
fn certificates() -> Result<Vec<u8>> {
    let path = env::var("SSL_CERT_FILE").unwrap_or_else(|_| "/etc/ssl/certs/ca-certificates.crt".to_owned());
    fs::read(&path).with_context(|| format!("reading {path}: install ca-certificates, or set SSL_CERT_FILE"))
}
