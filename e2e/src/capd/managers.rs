//! The managers that Cluster API's development provider needs besides the core's: kubeadm's bootstrap and control
//! plane, from the Go module in `capd`. They are built for this alone: nothing uses them by default.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

/// The two binaries.
#[derive(Debug)]
pub(super) struct Managers {
    pub(super) bootstrap: PathBuf,
    pub(super) control_plane: PathBuf,
}

/// Builds both into a directory; Go itself detects up-to-date binaries.
pub(super) fn build(directory: &Path) -> Result<Managers> {
    let managers = Managers { bootstrap: directory.join("bootstrap"), control_plane: directory.join("control-plane") };
    for (binary, package) in [
        (&managers.bootstrap, "sigs.k8s.io/cluster-api/bootstrap/kubeadm"),
        (&managers.control_plane, "sigs.k8s.io/cluster-api/controlplane/kubeadm"),
    ] {
        let status = Command::new("go")
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("capd"))
            .env("CGO_ENABLED", "0")
            .args(["build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o"])
            .arg(binary)
            .arg(package)
            .stdin(Stdio::null())
            .status()
            .context("running go")?;
        ensure!(status.success(), "go build of {package}: {status}");
    }
    Ok(managers)
}
