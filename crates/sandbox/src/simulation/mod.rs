//! The task that runs the simulated controllers, which is woken by changes in either API and by the next time at which
//! something is due. Its actions depend only on the objects and the clock, and its cost only on the changes.

mod engine;
mod port;
pub(crate) mod queue;
mod workloads;

#[cfg(test)]
mod tests;

use futures::future::select_all;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use self::{engine::Engine, workloads::Workloads};
pub(crate) use self::{port::referred, workloads::WorkloadApis};
use crate::{
    api::Api,
    clock::Clock,
    settings::{Settings, Times},
};

/// The number of objects that are reconciled before the task yields.
const SLICE: usize = 32;

#[derive(Debug)]
enum Command {
    /// Answer when nothing is left to do.
    Settle(oneshot::Sender<()>),
    /// Use these times from now on.
    Times(Times),
}

/// The running controllers, which end when this is dropped.
#[derive(Debug)]
pub struct Simulation {
    commands: mpsc::UnboundedSender<Command>,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Simulation {
    /// Starts the controllers of `management`, which must have Cluster API's kinds; Nodes are created and deleted in
    /// `workload`. The controllers begin with a reconcile of all existing objects.
    #[must_use]
    pub fn start(management: &Api, workload: &Api, clock: Clock, settings: Settings) -> Self {
        let mut engine = Engine::new(management, Workloads::shared(workload), clock.clone(), settings);
        engine.add_all();
        Self::run(engine, clock)
    }

    /// Starts the controllers as [`Simulation::start`] does, but takes existing objects as settled and reconciles them
    /// only when they change: for fleets.
    #[must_use]
    pub(crate) fn start_settled(management: &Api, workload: &Api, clock: Clock, settings: Settings) -> Self {
        Self::run(Engine::new(management, Workloads::shared(workload), clock.clone(), settings), clock)
    }

    /// Starts the controllers as [`Simulation::start_settled`] does, with a workload cluster for each Cluster.
    #[must_use]
    pub(crate) fn start_clusters(management: &Api, workloads: &WorkloadApis, clock: Clock, settings: Settings) -> Self {
        Self::run(Engine::new(management, Workloads::of_clusters(workloads), clock.clone(), settings), clock)
    }

    fn run(engine: Engine, clock: Clock) -> Self {
        let (commands, asked) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let task = tokio::spawn(stop.clone().run_until_cancelled_owned(follow(engine, clock, asked)));
        Self { commands, stop, task: Some(tokio::spawn(async move { drop(task.await) })) }
    }

    /// Waits until nothing is left to do at the present time, including everything written before this call.
    pub async fn settle(&self) {
        let (done, is_done) = oneshot::channel();
        if self.commands.send(Command::Settle(done)).is_ok() {
            // Without an answer the simulation has ended, and there is nothing left to do.
            let _ = is_done.await;
        }
    }

    /// Changes the durations of all steps whose wait hasn't begun yet.
    pub fn set_times(&self, times: Times) {
        // A simulation that has ended needs no times.
        let _ = self.commands.send(Command::Times(times));
    }

    /// Ends the controllers and waits until they have ended.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            // A task that panicked has nothing left to end.
            let _ = task.await;
        }
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn follow(mut engine: Engine, clock: Clock, mut commands: mpsc::UnboundedReceiver<Command>) {
    let (mut management, mut workloads) = engine.subscribe();
    let mut waiting = Vec::new();
    loop {
        while let Ok(command) = commands.try_recv() {
            obey(command, &mut engine, &mut waiting);
        }
        mark_seen(&mut management);
        workloads.iter_mut().for_each(mark_seen);
        if !engine.work(SLICE) {
            tokio::task::yield_now().await;
            continue;
        }
        for one in waiting.drain(..) {
            // The caller may have gone away.
            let _ = one.send(());
        }
        let due = async {
            match engine.next() {
                Some(time) => clock.wait_until(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            command = commands.recv() => match command {
                Some(command) => obey(command, &mut engine, &mut waiting),
                None => return,
            },
            changed = management.changed() => if changed.is_err() { return },
            is_served = any_changed(&mut workloads) => if !is_served { return },
            () = due => {}
        }
    }
}

fn obey(command: Command, engine: &mut Engine, waiting: &mut Vec<oneshot::Sender<()>>) {
    match command {
        Command::Settle(done) => waiting.push(done),
        Command::Times(times) => engine.set_times(times),
    }
}

/// Waits for a change of any of these; returns false if one of them has ended.
async fn any_changed(all: &mut [watch::Receiver<u64>]) -> bool {
    if all.is_empty() {
        return std::future::pending().await;
    }
    let (changed, ..) = select_all(all.iter_mut().map(|one| Box::pin(one.changed()))).await;
    changed.is_ok()
}

fn mark_seen(changes: &mut watch::Receiver<u64>) {
    changes.borrow_and_update();
}
