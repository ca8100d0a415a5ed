//! One Go module of this crate, and the binaries built from it. They are kept outside the clone, under a key of all
//! their inputs. Concurrent builders wait for each other.

use std::{
    env,
    ffi::OsStr,
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, anyhow, ensure};

const MISSING: &str = "e2e needs Go 1.26 or later on PATH to build kube-apiserver, etcd and others: \
    install it from go.dev, or run `cargo test` for the tests that need Rust and a C compiler only";

/// A directory with a `go.mod`.
#[derive(Clone, Debug)]
pub(crate) struct Module {
    directory: PathBuf,
}

/// The programs to build from a module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Build<'a> {
    /// The description that is shown during the build.
    pub(crate) what: &'a str,
    /// The Go packages of the programs.
    pub(crate) packages: &'a [&'a str],
    /// Input files besides pinned modules.
    pub(crate) files: &'a [&'a str],
    /// The flags of Go's linker.
    pub(crate) linker: &'a str,
}

impl Module {
    /// Returns the module in this directory of the crate, or the crate's own if it is empty.
    pub(crate) fn at(directory: &str) -> Self {
        Self { directory: Path::new(env!("CARGO_MANIFEST_DIR")).join(directory) }
    }

    /// Returns the directory of the binaries, and builds them if they are missing. Each is named after its package's
    /// last path element.
    pub(crate) fn binaries(&self, build: &Build<'_>) -> Result<PathBuf> {
        let binaries = cache_directory()?.join(self.key(build)?);
        let lock = lock(&binaries)?;
        if !binaries.exists() {
            self.build(build, &binaries)?;
        }
        lock.unlock()?;
        Ok(binaries)
    }

    /// Returns the version of a required module.
    pub(crate) fn version(&self, path: &str) -> Result<String> {
        let answer = self.go(["list", "-m", "-f", "{{.Version}}", path])?;
        Ok(answer.trim().to_owned())
    }

    /// Returns the directory of a required module, and downloads it if it is missing.
    pub(crate) fn source(&self, path: &str) -> Result<PathBuf> {
        let answer = self.go(["mod", "download", "-json", path])?;
        let answer: serde_json::Value = serde_json::from_str(&answer)?;
        answer["Dir"].as_str().map(PathBuf::from).with_context(|| format!("no directory of {path} in {answer}"))
    }

    /// Builds into a directory beside `binaries` and renames it, so that an existing directory is complete.
    fn build(&self, build: &Build<'_>, binaries: &Path) -> Result<()> {
        eprintln!("e2e: building {}; the first time takes some minutes", build.what);
        let unfinished = binaries.with_extension("unfinished");
        fs::create_dir_all(&unfinished)?;
        let status = self
            .command()
            .args(["build", "-trimpath", "-buildvcs=false", "-ldflags", build.linker])
            .arg("-o")
            .arg(format!("{}/", unfinished.display()))
            .args(build.packages)
            .stdin(Stdio::null())
            .status()?;
        ensure!(status.success(), "building {}: go build: {status}", build.what);
        fs::rename(&unfinished, binaries)?;
        Ok(())
    }

    /// Returns a key of all inputs of the binaries, including this file.
    fn key(&self, build: &Build<'_>) -> Result<String> {
        let mut hasher = DefaultHasher::new();
        self.go(["version"])?.hash(&mut hasher);
        (build.packages, build.linker, include_str!("module.rs")).hash(&mut hasher);
        for file in ["go.mod", "go.sum"].iter().chain(build.files) {
            let path = self.directory.join(file);
            fs::read(&path).with_context(|| format!("reading {}", path.display()))?.hash(&mut hasher);
        }
        Ok(format!("{:016x}", hasher.finish()))
    }

    /// Runs go in the module and returns its output.
    fn go<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Result<String> {
        let output =
            self.command().args(arguments).stdin(Stdio::null()).output().map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => anyhow!(MISSING),
                _ => anyhow!(error).context("running go"),
            })?;
        ensure!(output.status.success(), "go: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("go");
        command.current_dir(&self.directory).env("CGO_ENABLED", "0");
        command
    }
}

/// Takes a lock that one builder holds at a time, over all processes of this user.
fn lock(binaries: &Path) -> Result<File> {
    let path = binaries.with_extension("lock");
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let file = File::create(&path)?;
    file.lock().with_context(|| format!("locking {}", path.display()))?;
    Ok(file)
}

/// Returns `$XDG_CACHE_HOME`, or `~/.cache`, with the project's name.
fn cache_directory() -> Result<PathBuf> {
    let base = env::var_os("XDG_CACHE_HOME")
        .filter(|directory| !directory.is_empty())
        .map(PathBuf::from)
        .or_else(|| Some(env::home_dir()?.join(".cache")))
        .context("no home directory to keep built components in: set XDG_CACHE_HOME")?;
    Ok(base.join("capi-autoscaler-provider/e2e"))
}
