//! Runs the promises of an informer on a dedicated API server.

mod event_log;
mod setup;

use std::{process::ExitCode, sync::Arc};

use anyhow::Result;
use futures::future::LocalBoxFuture;
use libtest_mimic::Trial;
use tokio::runtime::Runtime;

pub use self::{
    event_log::EventLog,
    setup::{Lists, Setup},
};
use crate::{
    control_plane::ControlPlane,
    crds::Installed,
    go,
    objects::Contract,
    runner::{self, Shared, failed},
};

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
    let trials = |suite: &Arc<Suite>| {
        let each = promises.iter().flat_map(|&promise| Lists::ALL.map(|lists| (promise, lists)));
        let trial = |(promise, lists): (Promise, Lists)| {
            let (suite, name) = (Arc::clone(suite), format!("informer::{}::{}", promise.name, lists.as_str()));
            Trial::test(name, move || {
                let outcome = suite.runtime.block_on(suite.try_promise(lists, promise));
                outcome.map_err(|error| failed(&error))
            })
        };
        Ok(each.map(trial).collect())
    };
    runner::run("informer", AT_ONCE, Suite::new(), trials, |suite| suite.plane.end())
}

struct Suite {
    runtime: Runtime,
    plane: Shared<ControlPlane>,
}

impl Suite {
    fn new() -> Result<Self> {
        Ok(Self { runtime: Runtime::new()?, plane: Shared::default() })
    }

    async fn try_promise(&self, lists: Lists, promise: Promise) -> Result<()> {
        let start = async {
            let components = Arc::new(go::components()?);
            ControlPlane::start(components, Contract::V1Beta2, Installed::Nothing).await
        };
        (promise.run)(&Setup::new(self.plane.get(start).await?, lists).await?).await
    }
}
