//! Cluster Autoscaler on a sandbox that somebody else runs, with Pods that are scheduled and run: for demonstrations.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::bail;
use sandbox::{Contract, Sandbox, api::Resource};
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    flags::Flags,
    groups::Groups,
    observer::{Observer, pending},
    process::{Process, start_autoscaler},
    scheduler::Scheduler,
    state::State,
    workloads::{Priorities, Workloads},
};

/// The factor by which Cluster Autoscaler's waits are shorter.
const SPEED: u32 = 60;
/// The longest pause between two looks at the APIs.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest wait for Pods to get a Node.
const PATIENCE: Duration = Duration::from_secs(120);

/// A Cluster Autoscaler on a sandbox. Dropping it ends it.
pub struct Live<'a> {
    sandbox: &'a Sandbox,
    contract: Contract,
    autoscaler: Process,
    scheduler: Scheduler,
    workloads: Workloads,
    observer: Observer,
    _folder: tempfile::TempDir,
}

impl<'a> Live<'a> {
    /// Starts Cluster Autoscaler on the workload cluster of a sandbox, with the provider at this address.
    pub fn start(binary: &Path, sandbox: &'a Sandbox, contract: Contract, provider: &str) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("cluster-autoscaler-").tempdir()?;
        let places = (folder.path(), folder.path());
        let flags = Flags::new(&[], SPEED)?;
        let autoscaler = start_autoscaler(binary, &flags, &sandbox.workload_kubeconfig(), provider, places)?;
        let state = State::read(sandbox.workload().api());
        let groups = Groups::read(sandbox.management().api(), &state.nodes, contract);
        Ok(Self {
            sandbox,
            contract,
            autoscaler,
            scheduler: Scheduler::default(),
            workloads: Workloads::new(SPEED, Priorities::default()),
            observer: Observer::new(&state, &groups),
            _folder: folder,
        })
    }

    /// Creates Pods, and reports what happens until all Pods have a Node.
    pub async fn place(&mut self, pods: Vec<Value>, say: &mut (dyn FnMut(&str) + Send)) -> anyhow::Result<()> {
        let priorities = Priorities::default();
        for mut pod in pods {
            priorities.admit(&mut pod);
            self.sandbox.workload().api().create(&Resource::core("pods"), pod)?;
        }
        let began = Instant::now();
        loop {
            let state = self.step(say)?;
            if pending(&state).is_empty() {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                bail!("{} Pods have no Node after {} s", pending(&state).len(), PATIENCE.as_secs());
            }
            self.pause().await;
        }
    }

    /// Reports what happens, for ever.
    pub async fn follow(&mut self, say: &mut (dyn FnMut(&str) + Send)) -> anyhow::Result<()> {
        loop {
            self.step(say)?;
            self.pause().await;
        }
    }

    fn step(&mut self, say: &mut (dyn FnMut(&str) + Send)) -> anyhow::Result<State> {
        self.autoscaler.still_runs()?;
        let workload = self.sandbox.workload().api();
        self.workloads.act(workload, &State::read(workload), Instant::now());
        self.scheduler.act(workload, &State::read(workload));
        let state = State::read(workload);
        let groups = Groups::read(self.sandbox.management().api(), &state.nodes, self.contract);
        for what in self.observer.look(workload, &state, &groups) {
            say(&what);
        }
        Ok(state)
    }

    async fn pause(&self) {
        let mut changes = self.sandbox.workload().api().subscribe();
        changes.borrow_and_update();
        // Time alone brings something too.
        let _ = timeout(PAUSE, changes.changed()).await;
        tokio::time::sleep(PAUSE / 5).await;
    }
}
