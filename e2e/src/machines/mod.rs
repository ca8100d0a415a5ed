//! A management cluster in Docker with Cluster API, CAPD and the chart, and a workload cluster whose Machines are
//! containers with real kubelets. It needs root, Docker and a network, and must leave nothing behind.

mod autoscaler;
mod management;
mod workload;

use std::{
    env,
    io::{Read as _, stdin},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Result;
use futures::future::LocalBoxFuture;

pub use self::{
    management::Management,
    workload::{NAMESPACE, Workload},
};
use crate::{
    controllers::testbed::Testbed,
    nodes::suite::{self, Shared},
    program,
    runner::Scenario,
};

/// The environment variable that keeps both clusters until the end of standard input; any value will do.
const KEEP: &str = "E2E_KEEP";

/// The body of a scenario.
pub type Body = for<'a> fn(&'a Setup<'a>) -> LocalBoxFuture<'a, Result<()>>;

/// The clusters of one scenario.
pub struct Setup<'a> {
    /// The management cluster, with the chart and the autoscaler.
    pub management: &'a Management,
    /// The workload cluster.
    pub workload: &'a Workload,
    /// Groups and Pods of its own, which are removed at the end.
    pub testbed: Testbed,
    /// The directory of its logs.
    pub logs: PathBuf,
}

/// Runs the scenarios that the command line selects, if the environment lets them.
pub fn run(scenarios: &[Scenario<Body>], logs: &Path) -> ExitCode {
    suite::run::<Machines>(scenarios, logs)
}

/// All that scenarios share.
struct Machines {
    // Declared in the order in which they are ended.
    workload: Workload,
    management: Management,
    program: PathBuf,
}

impl Shared for Machines {
    type Body = Body;

    async fn start(logs: &Path) -> Result<Self> {
        let program = program::build()?;
        let management = Management::start(logs).await?;
        let made = Box::pin(prepare(&management, logs)).await;
        if made.is_err() {
            // The logs have the reason, and would be removed with the cluster.
            let _ = management.keep_logs(logs);
        }
        Ok(Self { workload: made?, management, program })
    }

    async fn run_scenario(&self, number: usize, body: Body, logs: &Path) -> Result<()> {
        let clusters = &self.workload.clusters;
        let directory = logs.join("program");
        std::fs::create_dir_all(&directory)?;
        let testbed = Testbed::existing(clusters, number, self.program.clone(), directory).await?;
        let setup = Setup { management: &self.management, workload: &self.workload, testbed, logs: logs.to_owned() };
        let outcome = body(&setup).await;
        let kept = self.management.keep_logs(logs);
        // They are megabytes, which only a failure needs.
        let kept = if outcome.is_err() { kept.and(self.workload.keep_logs(logs)) } else { kept };
        let left = setup.testbed.leave().await;
        outcome.and(kept).and(left)
    }

    async fn remove(self) -> Result<()> {
        if env::var_os(KEEP).is_some() {
            let clusters = &self.workload.clusters;
            eprintln!("kept until the end of standard input: {}", clusters.management.display());
            eprintln!("and the workload cluster: {}", clusters.workload.display());
            tokio::task::spawn_blocking(|| stdin().read_to_end(&mut Vec::new())).await??;
        }
        self.workload.remove().await?;
        self.management.remove()
    }
}

async fn prepare(management: &Management, logs: &Path) -> Result<Workload> {
    let workload = Workload::create(management, logs).await?;
    let installed = autoscaler::install(management).await;
    if installed.is_err() {
        let _ = workload.keep_logs(logs);
    }
    installed?;
    Ok(workload)
}
