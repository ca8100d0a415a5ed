//! The behaviour of a Kubernetes API, as cases that run on the sandbox and on a real API server alike (by `e2e`), so
//! that the sandbox can't drift from it. A case must not know which server it runs on: it sees only requests and
//! answers.

mod patching;
mod reading;
mod subject;
mod watching;
mod writing;

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::{Context, Result};
use futures::future::{BoxFuture, LocalBoxFuture};
use tokio::sync::{OnceCell, RwLock};

use subject::Subject;

/// The time limit of a case, after which a case that hangs fails with its name instead of holding up the run.
const LIMIT: Duration = Duration::from_secs(60);

/// A function that makes all resource versions so far too old to be read or watched from.
type ForgetHistory = Box<dyn Fn() -> BoxFuture<'static, Result<()>> + Send + Sync>;

/// The function of a case.
type Run = for<'a> fn(&'a Subject<'a>) -> LocalBoxFuture<'a, Result<()>>;

/// A case: one behaviour.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    /// The name of the file and the rule, such as `reading::an_object_that_is_not_there_is_not_found`.
    pub(crate) name: &'static str,
    history: History,
    run: Run,
}

/// The effect of a case on the history, which all cases share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum History {
    Kept,
    Forgotten,
}

impl Case {
    const fn new(name: &'static str, run: Run) -> Self {
        Self { name, history: History::Kept, run }
    }

    /// Declares that the case drops the server's history, so that no other case may run at the same time.
    const fn forgets(mut self) -> Self {
        self.history = History::Forgotten;
        self
    }
}

/// Creates a case from its function, an `async fn(&Subject) -> Result<()>`, named after its file.
macro_rules! case {
    ($module:ident::$function:ident) => {
        super::Case::new(concat!(stringify!($module), "::", stringify!($function)), |subject| {
            Box::pin($function(subject))
        })
    };
}
use case;

/// Returns the cases that an API server has to pass without controllers beside it.
pub(crate) fn cases() -> Vec<Case> {
    [reading::cases(), watching::cases(), writing::cases(), patching::cases()].concat()
}

/// A runner of cases on one API server, which runs them concurrently.
pub(crate) struct Suite {
    client: kube::Client,
    forget_history: ForgetHistory,
    set_up: OnceCell<()>,
    history: RwLock<()>,
    started: AtomicUsize,
}

impl Suite {
    /// Creates a suite for the API server of `client`, which must have all permissions.
    pub(crate) fn new(client: kube::Client, forget_history: ForgetHistory) -> Self {
        Self { client, forget_history, set_up: OnceCell::new(), history: RwLock::new(()), started: AtomicUsize::new(0) }
    }

    /// Runs a case in a namespace of its own. The first run installs the suite's own kind.
    pub(crate) async fn run(&self, case: Case) -> Result<()> {
        let install = || async { subject::install(&self.client).await };
        self.set_up.get_or_try_init(install).await.context("installing the kind of the suite")?;
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let subject = Subject::new(self.client.clone(), number, &self.forget_history).await?;
        let run = async || {
            tokio::time::timeout(LIMIT, (case.run)(&subject))
                .await
                .with_context(|| format!("not done within {} s", LIMIT.as_secs()))?
        };
        match case.history {
            History::Kept => {
                let _kept = self.history.read().await;
                run().await
            }
            History::Forgotten => {
                let _alone = self.history.write().await;
                run().await
            }
        }
    }
}
