//! Clusters as `explain` reads them: the same lists and the same projections as those of a server, until all of it is
//! there. Nothing is written, and nothing is left running.

use std::time::{Duration, Instant};

use tokio::{runtime::Handle, time::sleep};

use super::ExplainError;
use crate::{
    cli::picture_config::PictureConfig,
    cluster::{Management, ManagementOptions, Workload, WorkloadOptions},
    informer::Settings,
    server::{Check, CheckState, Checks as _},
};

/// How often it is looked whether all is there.
const LOOK: Duration = Duration::from_millis(20);

/// A picture that is complete.
pub(super) struct Picture {
    management: Management,
    workload: Workload,
}

impl Picture {
    /// Reads the clusters, for at most `patience`.
    ///
    /// # Errors
    /// When they can't be reached, or aren't read in time: which kinds, and why.
    pub(super) async fn read(config: PictureConfig, patience: Duration) -> Result<Self, ExplainError> {
        let runtime = Handle::current();
        let connect =
            |cluster, error: &dyn std::error::Error| ExplainError::Connect { cluster, why: error.to_string() };
        let clients = config.management.connect().await.map_err(|error| connect("management", &error))?;
        if !config.workload.needs_request() {
            config.workload.connect(&clients).await.map_err(|error| connect("workload", &error))?;
        }
        let options = ManagementOptions {
            group: config.rules.keys.group.clone(),
            version: config.capi_version,
            informers: Settings::default(),
        };
        let management = Management::start(clients, options, &runtime);
        let options = WorkloadOptions {
            rules: config.rules,
            source: config.workload,
            max_staleness: patience,
            informers: Settings::default(),
        };
        let workload = Workload::start(management.clone(), options, &runtime);
        let picture = Self { management, workload };
        let until = Instant::now() + patience;
        while !picture.is_complete() {
            if Instant::now() >= until {
                let missing = picture.missing();
                picture.end().await;
                return Err(ExplainError::NotRead { patience, missing });
            }
            sleep(LOOK).await;
        }
        Ok(picture)
    }

    pub(super) fn index(&self) -> &crate::index::Index {
        self.workload.index()
    }

    /// Whether every kind is there, and of each kind of infrastructure template is known what can be known.
    fn is_complete(&self) -> bool {
        self.workload.checks().iter().all(Check::is_ready) && self.workload.index().has_settled()
    }

    fn missing(&self) -> String {
        let checks = self.workload.checks();
        let missing = checks.into_iter().filter_map(|check| match check.state {
            CheckState::Ready => None,
            CheckState::Pending(why) | CheckState::Informational(why) => Some(format!("\n  {}: {why}", check.name)),
        });
        missing.collect()
    }

    /// Ends all that was started.
    pub(super) async fn end(self) {
        self.workload.shutdown().await;
        self.management.shutdown().await;
    }
}
