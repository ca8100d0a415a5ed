//! `watch`: shows the changes in a cluster, object by object, and sends notifications. It must never write to a
//! cluster.

mod args;
mod catalog;
mod config;
mod follow;
mod narrowing;
mod printer;
mod render;
mod reporter;
mod rights;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests;

use std::{
    collections::BTreeSet,
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use tokio::runtime::Handle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use self::{
    args::{Output, Target, WatchArgs},
    catalog::{Wanted, WantedBy},
    config::{WatchConfig, Where},
    narrowing::Narrowing,
};
use self::{
    catalog::{Catalog, NotFound, Resource},
    follow::{Following, Shared},
    printer::{Form, Printer, Writing},
    reporter::Outlet,
};
use crate::{
    connect::{Clients, cause},
    notify::{DRAIN, Limits, Notifier, Pace},
    server::Shutdown,
};
use shared_informer::{Factory, Namespaces, Settings};

/// The time that a slow reader has at the end to read the last lines.
const LAST_LINES: Duration = Duration::from_secs(1);
/// The number of resources that are checked concurrently.
const PARALLEL: usize = 4;

/// Watches until the program is asked to end, or until nobody reads its output.
pub(super) fn run(config: WatchConfig) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("can't start the runtime")?;
    let result = runtime.block_on(async {
        let shutdown = Shutdown::on_signals().context("can't listen for signals")?;
        let stopping = shutdown.stopping();
        match stopping.run_until_cancelled(Watch::start(config, io::stdout())).await {
            Some(started) => started?.finish(&shutdown).await,
            None => Ok(()),
        }
    });
    // A thread may still be blocked on an output that nobody reads.
    runtime.shutdown_background();
    result
}

/// The intervals and time limits of all parts; tests shorten them.
#[derive(Clone, Debug, Default)]
struct Tempo {
    informers: Settings,
    follow: follow::Pace,
    notify: Pace,
}

/// A running watch.
pub struct Watch {
    shared: Arc<Shared>,
    notifier: Option<Arc<Notifier>>,
    writing: Option<Writing>,
    tasks: TaskTracker,
    ended: CancellationToken,
}

impl Watch {
    /// Checks the configuration against the cluster, and starts to watch. It needs a running multi-thread Tokio
    /// runtime.
    ///
    /// # Errors
    /// If a cluster can't be reached, a resource isn't served, a permission is missing, or a selector is refused.
    pub async fn start(config: WatchConfig, out: impl Write + Send + 'static) -> anyhow::Result<Self> {
        Self::begin(config, out, Tempo::default()).await
    }

    async fn begin(config: WatchConfig, out: impl Write + Send + 'static, tempo: Tempo) -> anyhow::Result<Self> {
        let clients = connect(&config).await?;
        let namespaces = namespaces(&config.namespaces, &clients.watches);
        let found = resolve(&clients.writes, &config).await?;
        check(&clients.writes, &config, &namespaces, &found).await?;
        say_what(&config, &namespaces, &found);
        rights::look_for_cluster(&clients.writes, &config, &found).await;
        let (outlets, notifier, writing) = outlets(&config, tempo.notify, out)?;
        let shared = Arc::new(Shared {
            factory: Factory::new(clients.watches, Handle::current(), tempo.informers),
            client: clients.writes,
            namespaces,
            narrowing: config.narrowing,
            ignore: config.ignore,
            cluster: config.target.name(),
            outlets,
            pace: tempo.follow,
        });
        let (tasks, ended) = (TaskTracker::new(), CancellationToken::new());
        for (wanted, resource) in found {
            let first: Option<Following> = resource.map(|resource| shared.start(&wanted, resource, false, None));
            let (shared, ended) = (Arc::clone(&shared), ended.clone());
            tasks.spawn(async move { ended.run_until_cancelled(shared.follow(wanted, first)).await });
        }
        tasks.close();
        Ok(Self { shared, notifier, writing, tasks, ended })
    }

    /// Waits until the program is asked to end or nobody reads its output; then sends queued notifications, and ends
    /// all tasks.
    ///
    /// # Errors
    /// If output can't be written, for another reason than that nobody reads it.
    pub async fn finish(self, shutdown: &Shutdown) -> anyhow::Result<()> {
        let unread = self.writing.as_ref().map(|writing| writing.broken.clone()).unwrap_or_default();
        let stopping = shutdown.stopping();
        tokio::select! {
            () = unread.cancelled() => shutdown.request(),
            () = stopping.cancelled() => {}
        }
        let mut written = Ok(());
        shutdown.finish(async { written = self.end().await }).await;
        written.context("can't write to standard output")
    }

    async fn end(self) -> io::Result<()> {
        let Self { shared, notifier, writing, tasks, ended } = self;
        let printed = async {
            ended.cancel();
            tasks.wait().await;
            // A handler may be blocked on an output that nobody reads.
            let _ = tokio::time::timeout(LAST_LINES, shared.factory.shutdown()).await;
            drop(shared);
            match writing {
                Some(writing) => writing.finish(LAST_LINES).await,
                None => Ok(()),
            }
        };
        let sent = async {
            let Some(notifier) = notifier else { return };
            for summary in notifier.drain(DRAIN).await {
                if summary.has_losses() {
                    tracing::warn!("notifications of {summary}");
                } else {
                    tracing::debug!("notifications of {summary}");
                }
            }
        };
        tokio::join!(printed, sent).0
    }
}

async fn connect(config: &WatchConfig) -> anyhow::Result<Clients> {
    // If the workload cluster has its own kubeconfig, the management cluster need not be reachable.
    if config.target == Target::Workload
        && let crate::connect::WorkloadSource::Own(source) = &config.workload
    {
        return source.connect().await.context("workload cluster");
    }
    let management = config.management.connect().await.context("management cluster")?;
    match config.target {
        Target::Management => Ok(management),
        Target::Workload => config.workload.connect(&management).await.context("workload cluster"),
    }
}

fn namespaces(place: &Where, client: &Client) -> Namespaces {
    match place {
        Where::All => Namespaces::All,
        Where::Named(names) => Namespaces::Only(names.clone()),
        Where::OfContext => Namespaces::Only(BTreeSet::from([client.default_namespace().to_owned()])),
    }
}

/// Finds each wanted resource by discovery; `None` for one that isn't served.
async fn resolve(client: &Client, config: &WatchConfig) -> anyhow::Result<Vec<(Wanted, Option<Resource>)>> {
    let catalog = Catalog::discover(client).await;
    let catalog = catalog
        .map_err(|error| anyhow::anyhow!("can't ask the API server which kinds it serves: {}", cause(&error)))?;
    let mut found: Vec<(Wanted, Option<Resource>)> = Vec::new();
    for wanted in &config.wanted {
        let by_default = matches!(wanted.by, WantedBy::Kind { .. });
        let resource = match catalog.find(&wanted.by) {
            Ok(resource) => Some(resource),
            Err(NotFound::Unknown { .. }) if config.allow_missing || by_default => None,
            Err(error) => return Err(error.into()),
        };
        if let Some(resource) = resource {
            let others = catalog.others(&wanted.by, resource);
            if !others.is_empty() {
                tracing::warn!("{} means {}; there is also {}", wanted.by, resource.name(), others.join(", "));
            }
        }
        let narrowed = match (&config.narrowing, resource) {
            (Some(narrowing), Some(resource)) => narrowing.of_resource(wanted.clone(), resource),
            (None, _) | (_, None) => wanted.clone(),
        };
        let same = |(other, known): &(Wanted, Option<Resource>)| {
            *other == narrowed || (known.is_some() && known.as_ref() == resource && other.labels == narrowed.labels)
        };
        if !found.iter().any(same) {
            found.push((narrowed, resource.cloned()));
        }
    }
    if let [(Wanted { by: by @ WantedBy::Kind { .. }, .. }, None), ..] = &found[..]
        && found.iter().all(|(_, resource)| resource.is_none())
        && !config.allow_missing
    {
        bail!(
            "the API server serves no kind of Cluster API, not even {by}: name another cluster, or RESOURCEs to watch, \
             or wait for it with --allow-missing"
        );
    }
    Ok(found)
}

/// Reports a wrong call before anything is shown.
async fn check(
    client: &Client,
    config: &WatchConfig,
    namespaces: &Namespaces,
    found: &[(Wanted, Option<Resource>)],
) -> anyhow::Result<()> {
    let explicit = matches!(config.namespaces, Where::Named(_));
    if explicit && !config.allow_missing {
        rights::check_namespaces(client, namespaces).await?;
    }
    let checks = found.iter().filter_map(|(wanted, resource)| Some((wanted, resource.as_ref()?)));
    let checks = stream::iter(checks).map(|(wanted, resource)| async move {
        let everywhere = Namespaces::All;
        let place = if resource.namespaced { namespaces } else { &everywhere };
        rights::check(client, resource, place, wanted).await
    });
    checks.buffered(PARALLEL).try_collect::<()>().await?;
    let kinds: Vec<_> = found.iter().filter_map(|(_, resource)| resource.as_ref().map(|found| &found.kind)).collect();
    // A missing kind may turn out to be the one that a rule means.
    if found.iter().all(|(_, resource)| resource.is_some()) {
        for rule in &config.rules {
            if let Some(kind) = rule.unknown_kind(&kinds) {
                bail!(
                    "--notify-rules: rule {:?}: kind {kind:?} is not among what is watched: name it as a RESOURCE too, \
                     or correct it",
                    rule.name
                );
            }
        }
    }
    Ok(())
}

/// Logs what is watched, since a quiet cluster shows nothing for long.
fn say_what(config: &WatchConfig, namespaces: &Namespaces, found: &[(Wanted, Option<Resource>)]) {
    let resources: Vec<_> = found
        .iter()
        .map(|(wanted, resource)| match resource {
            Some(resource) => resource.name(),
            None => format!("{} (not served yet)", wanted.by),
        })
        .collect();
    let place = match namespaces {
        Namespaces::All => "all namespaces".to_owned(),
        Namespaces::Only(names) => names.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
    };
    let (resources, cluster) = (resources.join(", "), config.target.name());
    tracing::info!(namespaces = place, cluster, "watching {resources}");
}

type Outlets = (Vec<Outlet>, Option<Arc<Notifier>>, Option<Writing>);

fn outlets(config: &WatchConfig, pace: Pace, out: impl Write + Send + 'static) -> anyhow::Result<Outlets> {
    let mut outlets = Vec::new();
    let notifier = if config.rules.is_empty() {
        None
    } else {
        let started = Notifier::start(config.rules.clone(), Limits::default(), pace, &Handle::current());
        Some(Arc::new(started.context("notifications")?))
    };
    outlets.extend(notifier.clone().map(Outlet::Notifier));
    let form = match config.output {
        Output::Json => Some(Form::Json),
        Output::Text => Some(Form::Text { coloured: config.color.is_on() }),
        Output::None => None,
    };
    let writing = match form {
        Some(form) => {
            let (printer, writing) = Printer::start(out, form).context("can't start the output")?;
            outlets.push(Outlet::Printer { printer, initial: config.show_initial });
            Some(writing)
        }
        None => None,
    };
    Ok((outlets, notifier, writing))
}
