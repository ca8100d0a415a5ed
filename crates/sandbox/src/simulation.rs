//! The task that runs the simulated controllers, which is woken by changes in either API and by the next time at which
//! something is due. Its actions depend only on the objects and the clock, and its cost only on the changes.

use futures::future::select_all;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    api::Api,
    clock::Clock,
    engine::{Controller, Controllers, Workloads},
    settings::{Models, Settings, Times},
};

/// The number of rounds of steps that are taken before the task yields.
const SLICE: usize = 32;

#[derive(Debug)]
enum Command {
    /// Answer when nothing is left to do.
    Settle(oneshot::Sender<()>),
    /// Use these times from now on.
    Times(Times),
    /// Make Nodes of these models from now on.
    Models(Models),
    /// End.
    End,
}

/// The running controllers, which end when this is dropped.
#[derive(Debug)]
pub struct Simulation(mpsc::UnboundedSender<Command>);

impl Simulation {
    /// Starts the controllers of `management`, which must have Cluster API's kinds. They take its objects as settled, and
    /// reconcile them only when they change.
    pub(crate) fn start(management: &Api, workloads: Workloads, clock: Clock, settings: Settings) -> Self {
        let controllers = Controllers::live(management, workloads, clock.clone(), settings);
        let (commands, asked) = mpsc::unbounded_channel();
        tokio::spawn(follow(controllers, clock, asked));
        Self(commands)
    }

    /// Waits until nothing is left to do at the present time, including everything written before this call.
    pub async fn settle(&self) {
        let (done, is_done) = oneshot::channel();
        if self.0.send(Command::Settle(done)).is_ok() {
            // Without an answer the simulation has ended, and there is nothing left to do.
            let _ = is_done.await;
        }
    }

    /// Changes the durations of all steps whose wait hasn't begun yet.
    pub fn set_times(&self, times: Times) {
        // A simulation that has ended needs no times.
        let _ = self.0.send(Command::Times(times));
    }

    /// Changes what new Nodes are like. Machines that have waited for a model become Nodes.
    pub fn set_models(&self, models: Models) {
        // A simulation that has ended makes no Nodes.
        let _ = self.0.send(Command::Models(models));
    }

    /// Ends the controllers, and waits until they have ended.
    pub async fn end(&self) {
        // It may have ended already.
        let _ = self.0.send(Command::End);
        self.settle().await;
    }
}

async fn follow(mut controllers: Controllers, clock: Clock, mut commands: mpsc::UnboundedReceiver<Command>) {
    let mut changes = controllers.subscribe();
    let mut waiting: Vec<oneshot::Sender<()>> = Vec::new();
    loop {
        for changes in &mut changes {
            changes.borrow_and_update();
        }
        if !controllers.settle(SLICE) {
            tokio::task::yield_now().await;
            continue;
        }
        for one in waiting.drain(..) {
            // The caller may have gone away.
            let _ = one.send(());
        }
        let next = Controller::ALL.into_iter().filter_map(|controller| controllers.next(controller)).min();
        let due = async {
            match next {
                Some(time) => clock.wait_until(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            command = commands.recv() => match command {
                Some(Command::Settle(done)) => waiting.push(done),
                Some(Command::Times(times)) => controllers.set_times(times),
                Some(Command::Models(models)) => controllers.set_models(models),
                Some(Command::End) | None => return,
            },
            is_served = any_changed(&mut changes) => if !is_served { return },
            () = due => {}
        }
    }
}

/// Waits for a change of any of these; returns false if one of them has ended.
async fn any_changed(all: &mut [watch::Receiver<u64>]) -> bool {
    let (changed, ..) = select_all(all.iter_mut().map(|one| Box::pin(one.changed()))).await;
    changed.is_ok()
}
