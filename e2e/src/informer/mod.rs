//! Runs the promises of an informer on a dedicated API server.

mod event_log;
mod setup;

use std::{process::ExitCode, sync::Arc};

use anyhow::{Result, anyhow};
use futures::future::LocalBoxFuture;
use libtest_mimic::{Failed, Trial};
use tokio::{runtime::Runtime, sync::OnceCell};

pub use self::{
    event_log::EventLog,
    setup::{Lists, Setup},
};
use crate::{control_plane::ControlPlane, crds::Installed, go, objects::Contract, selection::Selection};

/// The number of concurrent scenarios, which mostly wait.
const AT_ONCE: usize = 8;

/// The body of a scenario.
pub type Run = for<'a> fn(&'a Setup) -> LocalBoxFuture<'a, Result<()>>;

/// One promise.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// The name.
    pub name: &'static str,
    /// The promise's scenario.
    pub run: Run,
}

/// Lists promises by the paths of their functions, each an `async fn(&Setup) -> Result<()>`.
#[macro_export]
macro_rules! promises {
    ($($module:ident::$function:ident),* $(,)?) => {
        [$($crate::informer::Promise {
            name: concat!(stringify!($module), "::", stringify!($function)),
            run: |setup| Box::pin($module::$function(setup)),
        }),*]
    };
}

/// Runs the promises that the command line selects, like libtest: each with streamed and with paged lists.
#[must_use]
pub fn run(promises: &[Promise]) -> ExitCode {
    let mut selection = Selection::from_args();
    selection.arguments.test_threads.get_or_insert(AT_ONCE);
    let runtime = match Runtime::new() {
        Ok(runtime) => Arc::new(runtime),
        Err(error) => {
            eprintln!("informer: {error}");
            return ExitCode::FAILURE;
        }
    };
    let started = Arc::new(Started::const_new());
    let mut trials = Vec::new();
    for &promise in promises {
        for lists in Lists::ALL {
            let (runtime, started) = (Arc::clone(&runtime), Arc::clone(&started));
            let name = format!("informer::{}::{}", promise.name, lists.as_str());
            trials.push(Trial::test(name, move || {
                let outcome = runtime.block_on(try_promise(lists, promise, &started));
                outcome.map_err(|error| Failed::from(format!("{error:#}")))
            }));
        }
    }
    let conclusion = selection.run(trials);
    drop(started);
    conclusion.exit_code()
}

/// The result of starting the real API server for the first trial that needs it. A failure is not retried for each
/// trial.
type Started = OnceCell<Result<Arc<ControlPlane>, String>>;

async fn try_promise(lists: Lists, promise: Promise, started: &Started) -> Result<()> {
    let start = async || start().await.map_err(|error| format!("{error:#}"));
    let plane = started.get_or_init(start).await.as_ref().map_err(|error| anyhow!("{error}"))?;
    (promise.run)(&Setup::new(Arc::clone(plane), lists).await?).await
}

async fn start() -> Result<Arc<ControlPlane>> {
    let components = Arc::new(go::components()?);
    Ok(Arc::new(ControlPlane::start(components, Contract::V1Beta2, Installed::Nothing).await?))
}
