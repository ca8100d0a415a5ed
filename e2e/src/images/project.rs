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

/// The base of the build: a C compiler, beside the installed Rust.
const BUILDER: Rootfs = Rootfs {
    name: "builder",
    suite: "trixie",
    variant: "essential",
    packages: &["ca-certificates", "gcc", "libc6-dev"],
    hooks: &["rm -rf \"$1\"/var/lib/apt \"$1\"/var/cache/apt \"$1\"/usr/share/doc \"$1\"/usr/share/man"],
};

/// The base of the result: the libraries that the program is linked to, and certificate authorities. No shell.
const RUNTIME: Rootfs = Rootfs {
    name: "runtime",
    suite: "trixie",
    variant: "extract",
    packages: &["base-files", "ca-certificates", "libc6", "libgcc-s1", "netbase"],
    hooks: &[
        // Essential packages come along; the program needs none of them.
        "cd \"$1\" && mkdir kept && cp --parents -a usr/lib/*-linux-gnu/lib*.so* usr/lib64 usr/lib/os-release etc/os-release \
            etc/debian_version usr/share/ca-certificates etc/protocols etc/services kept/ && \
            cp -a --parents usr/lib/*-linux-gnu/ld-linux* kept/ && \
            find . -mindepth 1 -maxdepth 1 ! -name kept -exec rm -rf {} + && mv kept/* . && rmdir kept && \
            ln -s usr/lib lib && ln -s usr/lib64 lib64 && mkdir -m 1777 tmp && mkdir -p etc/ssl/certs && \
            find usr/share/ca-certificates -name '*.crt' | sort | xargs cat > etc/ssl/certs/ca-certificates.crt && \
            printf 'root:x:0:0:root:/root:/sbin/nologin\\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\\n' \
            > etc/passwd && printf 'root:x:0:\\nnonroot:x:65532:\\n' > etc/group",
    ],
};

/// The project's image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its name in Docker's store.
    pub name: String,
    /// The digest of its manifest.
    pub digest: String,
}

/// The use of earlier builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cache {
    /// Steps and compiled crates are kept between builds, and the result is loaded into Docker.
    Kept,
    /// Everything is built from nothing, and the result is only looked at.
    Fresh,
}

/// Builds the image.
pub(super) async fn make(docker: &Docker, directory: &Path, source: Source, cache: Cache) -> Result<Image> {
    let bases = match source {
        Source::Published => None,
        Source::Built => Some(bases(directory).await?),
    };
    eprintln!("e2e: building the project's image");
    let builder = Builder::start(&directory.join("buildkit")).await?;
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut build = Build {
        dockerfile: repository.join("Dockerfile"),
        context: repository,
        directories: Vec::new(),
        bases: Vec::new(),
        arguments: vec![("VERSION", VERSION.to_owned())],
        anew: cache == Cache::Fresh,
    };
    if let Some((compiler, runtime)) = &bases {
        build.bases = vec![("builder", compiler), ("runtime", runtime)];
        build.arguments.extend([("BUILDER", "builder".to_owned()), ("RUNTIME", "runtime".to_owned())]);
    }
    let digest = match cache {
        Cache::Kept => builder.load(&build, NAME, *docker),
        Cache::Fresh => builder.digest(&build, NAME),
    };
    builder.stop().await?;
    Ok(Image { name: NAME.to_owned(), digest: digest? })
}

/// Returns the bases of the Dockerfile, and builds them if they are missing.
async fn bases(directory: &Path) -> Result<(Layout, Layout)> {
    let sysroot = PathBuf::from(output(Command::new("rustc").args(["--print", "sysroot"]))?.trim());
    let rust = output(Command::new("rustc").arg("-vV"))?;
    let certificates = certificates()?;
    let files = ["builder.Dockerfile", "rootfs.Dockerfile"].map(|file| fs::read(sources().join(file)));
    let [compiler, runtime] = files;
    let compiler = directory.join(format!("base-{}", key((BUILDER, compiler?, rust, &certificates))));
    let runtime = directory.join(format!("base-{}", key((RUNTIME, runtime?))));

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
        anew: false,
    };
    let [compiler, runtime] = layouts;
    let machine = tempfile::tempdir_in(directory)?;
    fs::write(machine.path().join("certificates.pem"), certificates)?;
    let directories = vec![
        ("machine", machine.path().to_owned()),
        ("rust-bin", sysroot.join("bin")),
        ("rust-lib", sysroot.join("lib")),
    ];
    let compiler = builder.base(&base("builder.Dockerfile", BUILDER.make(directory)?, directories), compiler)?;
    let runtime = builder.base(&base("rootfs.Dockerfile", RUNTIME.make(directory)?, Vec::new()), runtime)?;
    Ok((compiler, runtime))
}

/// Returns the certificate authorities that this machine trusts.
fn certificates() -> Result<Vec<u8>> {
    let path = env::var("SSL_CERT_FILE").unwrap_or_else(|_| "/etc/ssl/certs/ca-certificates.crt".to_owned());
    fs::read(&path).with_context(|| format!("reading {path}: install ca-certificates, or set SSL_CERT_FILE"))
}
