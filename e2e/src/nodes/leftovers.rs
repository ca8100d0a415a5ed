//! Everything of a run that could outlive it on the machine: containers, networks, volumes, mounts and processes.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Result, ensure};

use crate::images::Docker;

/// Programs that builds and clusters run outside of containers.
const PROGRAMS: [&str; 3] = ["buildkitd", "containerd-shim", "kind"];

/// The state of the machine at one time.
#[derive(Debug, PartialEq, Eq)]
pub struct Leftovers(BTreeSet<String>);

impl Leftovers {
    /// Returns what is there now.
    pub fn now(docker: Docker) -> Result<Self> {
        let mut all = BTreeSet::new();
        for (what, arguments) in [
            ("container", &["ps", "--all", "--quiet", "--no-trunc"][..]),
            ("network", &["network", "ls", "--quiet", "--no-trunc"]),
            ("volume", &["volume", "ls", "--quiet"]),
        ] {
            all.extend(docker.lines(arguments)?.into_iter().map(|name| format!("{what} {name}")));
        }
        for line in fs::read_to_string("/proc/self/mounts")?.lines() {
            let place = line.split(' ').nth(1).unwrap_or_default();
            all.insert(format!("mount {place}"));
        }
        for entry in fs::read_dir("/proc")? {
            let process = entry?.path();
            if let Some(name) = name_of(&process) {
                all.insert(format!("process {} {name}", process.display()));
            }
        }
        Ok(Self(all))
    }

    /// Fails if there is more now than there was.
    pub(crate) fn assert_none_since(&self, before: &Self) -> Result<()> {
        let new: Vec<_> = self.0.difference(&before.0).collect();
        ensure!(new.is_empty(), "left behind: {new:?}");
        Ok(())
    }
}

/// Returns the name of a process of a container, a build or a cluster, unless it has ended. Other processes on the
/// machine aren't a run's.
fn name_of(process: &Path) -> Option<String> {
    let read = |file: &str| fs::read_to_string(process.join(file)).ok();
    let name = read("comm")?.trim().to_owned();
    let concerns = PROGRAMS.iter().any(|known| name.starts_with(known)) || read("cgroup")?.contains("docker");
    concerns.then_some(name)
}
