//! The real Cluster API: a management cluster with its core's controllers and webhooks, and a workload cluster with a
//! scheduler and Nodes that come and go.
//!
//! The infrastructure of a workload cluster is `crate::infrastructure`. This module must know nothing of the program
//! under test.

pub mod manager;

use std::{fs, path::Path, process::Command, sync::Arc, time::Duration};

use anyhow::Result;

use self::manager::{Manager, Site};
use crate::{
    control_plane::ControlPlane,
    crds::Installed,
    go::Components,
    infrastructure::{self, Infrastructure, Times},
    objects::Contract,
    process::{Process, free_port},
    users::User,
};

/// The time within which idle controllers react on a machine that is not busy.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// The interval of polling many objects: polling must not keep the machine busy.
pub const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// All processes around the program. Dropping it ends them.
pub struct Environment {
    // The fields are declared in their drop order, so that no process logs errors about the end of another.
    _infrastructure: Infrastructure,
    /// The manager of Cluster API's core.
    pub core: Manager,
    scheduler: Process,
    /// The management cluster.
    pub management: Arc<ControlPlane>,
    /// The workload cluster, which all Clusters share.
    pub workload: ControlPlane,
}

impl Environment {
    /// Starts all processes, and waits until they are ready.
    pub async fn start(components: Arc<Components>) -> Result<Self> {
        let (management, workload) = tokio::try_join!(
            ControlPlane::start(Arc::clone(&components), Contract::V1Beta2, Installed::Nothing),
            ControlPlane::start_workload(Arc::clone(&components)),
        )?;
        let core = Manager::core(&Site::of(&management), &components).await?;
        infrastructure::install(&management.objects("default"), &infrastructure::KINDS).await?;
        let scheduler = start_scheduler(&components.kube_scheduler, &workload)?;
        let administrator = User::administrator();
        let infrastructure = Infrastructure::start(infrastructure::Settings {
            management: management.client(&administrator).await?,
            workload: workload.client(&administrator).await?,
            kubeconfig: workload.kubeconfig(&administrator),
            port: workload.port(),
            times: Times::default(),
        });
        Ok(Self { _infrastructure: infrastructure, core, scheduler, management: Arc::new(management), workload })
    }

    /// Returns the log files of its processes, by name.
    pub fn logs(&self) -> [(&'static str, &Path); 2] {
        [("cluster-api", self.core.log()), ("kube-scheduler", self.scheduler.log())]
    }
}

fn start_scheduler(binary: &Path, workload: &ControlPlane) -> Result<Process> {
    let kubeconfig = workload.directory().join("kube-scheduler.kubeconfig");
    fs::write(&kubeconfig, workload.kubeconfig(&User::administrator()).to_string())?;
    let mut command = Command::new(binary);
    command
        .env_clear()
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .args(["--bind-address=127.0.0.1", "--leader-elect=false"])
        .arg(format!("--secure-port={}", free_port()?));
    Process::start("kube-scheduler", command, &workload.directory().join("kube-scheduler.log"))
}
