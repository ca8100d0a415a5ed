//! Commands against a fake API server, with faults at the HTTP layer; the tests check the end state.

mod autoscaler;
mod callers;
mod deletes;
mod failed_writes;
mod hostile;
mod joined;
mod joins;
mod marks;
mod placeholders;
mod read_only;
mod replacements;
mod rollouts;
mod search;
mod sizes;
mod smaller;
mod tenants;
mod traceable;

use tokio::task::JoinHandle;

use super::{
    Scale, ScaleError,
    fake::{self, Fault, LONG, World},
};

/// The Machines of most tests.
const ABCD: [&str; 4] = ["a", "b", "c", "d"];

pub(super) type Running = JoinHandle<Result<(), ScaleError>>;

/// Begins a command.
fn begin<F>(world: &World, command: impl FnOnce(Scale) -> F) -> Running
where
    F: Future<Output = Result<(), ScaleError>> + Send + 'static,
{
    tokio::spawn(command(world.scale.clone()))
}

/// Begins a command, and waits until a call of it meets a fault that holds it.
pub(super) async fn held<F>(
    world: &World,
    call: &'static str,
    fault: Fault,
    command: impl FnOnce(Scale) -> F,
) -> Running
where
    F: Future<Output = Result<(), ScaleError>> + Send + 'static,
{
    world.api.fault(call, fault);
    let running = begin(world, command);
    world.api.held().await;
    running
}

/// Lets the caller of a command leave while a call of it is held, lets something happen, and waits for the command's end.
async fn leave(world: &World, running: Running, meanwhile: impl AsyncFnOnce()) {
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    meanwhile().await;
    world.api.release();
    world.scale.drain(LONG).await.unwrap();
}
