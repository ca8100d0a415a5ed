//! The autoscaler of a scenario: an unmodified Cluster Autoscaler if one is named, or a driver that makes the same
//! calls.
//!
//! Both reach the program through a recorder, and the same rules check their requests and the answers. This module must
//! know nothing of the program but its promises on the wire.

pub mod binary;
pub mod loops;
pub mod record;
pub mod rules;
mod transcript;

use std::{fs::File, io::Write as _, path::Path, time::Duration};

use anyhow::Result;
pub use binary::{Binary, CloudProvider};
use sandbox::autoscaler::{Driver, Workload};
pub use sandbox::autoscaler::{Expander, Version};
use tokio::task::JoinHandle;

use crate::{objects::Objects, provider::Caller};

/// The autoscaler of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Autoscaler {
    /// The driver, as this version.
    Driver(Version),
    /// Cluster Autoscaler.
    Binary(Binary),
}

impl Autoscaler {
    /// Returns the version whose fields it sends and reads.
    pub fn version(&self) -> Version {
        match self {
            Self::Driver(version) => *version,
            Self::Binary(binary) => binary.version,
        }
    }
}

/// The time from the end of a loop to the start of the next.
pub const PAUSE: Duration = Duration::from_secs(1);

/// The settings of an autoscaler. Its times are Cluster Autoscaler's options, far shorter than in any real cluster.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The time that a Node must be idle before it is removed.
    pub unneeded: Duration,
    /// The time within which a Node must join.
    pub provision: Duration,
    /// The strategy that chooses among groups that fit.
    pub expander: Expander,
}

impl Default for Settings {
    fn default() -> Self {
        Self { unneeded: Duration::from_secs(2), provision: Duration::from_secs(60), expander: Expander::LeastWaste }
    }
}

/// The duration of a scenario at most: a group that failed is not tried again in it.
const BACKOFF: Duration = Duration::from_secs(3600);

impl Settings {
    /// Returns the driver's settings. The other times are as short as those of the binaries.
    pub fn of_driver(self) -> sandbox::autoscaler::Settings {
        let second = Duration::from_secs(1);
        sandbox::autoscaler::Settings {
            // The driver computes less than Cluster Autoscaler.
            pause: Duration::from_millis(300),
            unneeded: self.unneeded,
            unready: self.unneeded,
            provision: self.provision,
            delay_after_add: second,
            delay_after_failure: second,
            delay_after_taint: Duration::ZERO,
            recheck: second,
            waits_for_more_pods: false,
            backoff: sandbox::autoscaler::Backoff { initial: BACKOFF, max: BACKOFF, reset: 3 * BACKOFF },
            expander: self.expander,
            ..sandbox::autoscaler::Settings::default()
        }
    }
}

/// Starts the driver on a provider's address, for the Pods of one namespace and all Nodes of the workload cluster. Its
/// notes go to a file.
pub fn drive(
    provider: &str,
    workload: &Objects,
    version: Version,
    settings: Settings,
    log: &Path,
) -> Result<JoinHandle<()>> {
    let caller = sandbox::autoscaler::Caller::new(Caller::to(provider)?.channel());
    let workload = Workload::of_namespace(workload.client(), workload.namespace());
    let log = File::create(log)?;
    let note = move |line: &str| {
        // A missing log is noticed by its reader.
        let _ = writeln!(&log, "{line}");
    };
    let driver = Driver::new(caller, workload, version, settings.of_driver(), fastrand::Rng::with_seed(0), note);
    Ok(tokio::spawn(driver.run()))
}
