//! The behaviour of a Kubernetes API, as cases that run on the sandbox and on a real API server alike, so that the
//! sandbox can't drift from what it stands for. A case knows nothing of who serves it: it sees requests and answers only.

mod applying;
mod call;
mod creating;
mod defining;
mod deleting;
mod discovery;
mod negotiating;
mod objects;
mod paging;
mod patching;
mod reading;
mod scaling;
mod selecting;
mod subject;
mod updating;
mod watch;
mod watching;

use std::{
    fmt,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::{Context, Result};
use futures::future::{BoxFuture, LocalBoxFuture};
use tokio::sync::{OnceCell, RwLock};

pub use subject::Subject;

/// The time limit of a case. Cases that hang fail with their name instead of holding up the run.
const LIMIT: Duration = Duration::from_secs(60);

/// Makes all resource versions that were given out so far too old to be read or watched from.
pub type ForgetHistory = Box<dyn Fn() -> BoxFuture<'static, Result<()>> + Send + Sync>;

/// The function of a case.
pub type Run = for<'a> fn(&'a Subject<'a>) -> LocalBoxFuture<'a, Result<()>>;

/// One behaviour.
#[derive(Clone, Copy)]
pub struct Case {
    /// The file's subject and the rule, as in `reading::an_object_that_is_not_there_is_not_found`.
    pub name: &'static str,
    /// The requirement of the case beside an API server.
    pub needs: Needs,
    history: History,
    run: Run,
}

/// The requirement of a case beside an API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// Something that deletes what depends on a deleted object. A real API server alone has none.
    GarbageCollector,
}

/// The effect of a case on the history that all cases share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum History {
    Kept,
    Forgotten,
}

impl Case {
    const fn new(name: &'static str, run: Run) -> Self {
        Self { name, needs: Needs::Nothing, history: History::Kept, run }
    }

    /// It makes the server forget: no other case runs meanwhile.
    const fn forgets(mut self) -> Self {
        self.history = History::Forgotten;
        self
    }

    const fn needs(mut self, needs: Needs) -> Self {
        self.needs = needs;
        self
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("needs", &self.needs).finish_non_exhaustive()
    }
}

/// A case by its function, an `async fn(&Subject) -> Result<()>`, named after its file.
macro_rules! case {
    ($module:ident::$function:ident) => {
        $crate::conformance::Case::new(concat!(stringify!($module), "::", stringify!($function)), |subject| {
            Box::pin($function(subject))
        })
    };
}
use case;

/// All cases.
#[must_use]
pub fn cases() -> Vec<Case> {
    [
        discovery::cases(),
        reading::cases(),
        paging::cases(),
        selecting::cases(),
        watching::cases(),
        creating::cases(),
        updating::cases(),
        deleting::cases(),
        patching::cases(),
        applying::cases(),
        scaling::cases(),
        negotiating::cases(),
        defining::cases(),
    ]
    .concat()
}

/// Runs cases on one API server, side by side.
pub struct Suite {
    client: kube::Client,
    forget_history: ForgetHistory,
    set_up: OnceCell<()>,
    history: RwLock<()>,
    started: AtomicUsize,
}

impl Suite {
    /// Cases on the API server that `client` leads to. The client must be allowed everything.
    #[must_use]
    pub fn new(client: kube::Client, forget_history: ForgetHistory) -> Self {
        Self { client, forget_history, set_up: OnceCell::new(), history: RwLock::new(()), started: AtomicUsize::new(0) }
    }

    /// Runs one case in a namespace of its own. The first one installs the suite's own kind.
    pub async fn run(&self, case: Case) -> Result<()> {
        let install = || async { objects::install(&self.client).await };
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

impl fmt::Debug for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suite").field("started", &self.started).finish_non_exhaustive()
    }
}
