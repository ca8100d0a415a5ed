//! File systems of Debian packages, by mmdebstrap: bit by bit the same for the same versions of packages.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use super::{builder::EPOCH, builder::key, output};

/// A file system to make.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Rootfs {
    /// The name of its file.
    pub(super) name: &'static str,
    /// Debian's release.
    pub(super) suite: &'static str,
    /// mmdebstrap's variant: `extract` unpacks the packages and nothing else, `essential` makes a system of them.
    pub(super) variant: &'static str,
    /// The packages.
    pub(super) packages: &'static [&'static str],
    /// Shell commands that are run at the end, with the directory as `$1`.
    pub(super) hooks: &'static [&'static str],
}

impl Rootfs {
    /// Returns a directory that has the file system as `rootfs.tar`, and makes it if it is missing.
    pub(super) fn make(&self, directory: &Path) -> Result<PathBuf> {
        let made = directory.join(format!("{}-{}", self.name, key((self, include_str!("debian.rs")))));
        if !made.exists() {
            eprintln!("e2e: unpacking Debian packages for {}", self.name);
            let unfinished = made.with_extension("unfinished");
            fs::create_dir_all(&unfinished)?;
            let mut command = Command::new("mmdebstrap");
            command.env("SOURCE_DATE_EPOCH", EPOCH).args(["--quiet", &format!("--variant={}", self.variant)]);
            // By default dpkg would sync each file to the disk.
            command.arg("--dpkgopt=force-unsafe-io");
            command.arg(format!("--include={}", self.packages.join(",")));
            // The variant `extract` doesn't run later hooks.
            let hook = if self.variant == "extract" { "extract" } else { "customize" };
            command.args(self.hooks.iter().map(|command| format!("--{hook}-hook={command}")));
            output(command.arg(self.suite).arg(unfinished.join("rootfs.tar")))?;
            fs::rename(&unfinished, &made)?;
        }
        Ok(made)
    }
}
