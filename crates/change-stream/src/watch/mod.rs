//! Follows the resources of one cluster, and reports each change of each object: to the program that started it, and to
//! webhooks. It must never write to a cluster.

mod catalog;
mod config;
mod follow;
mod rights;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use connect::{Clients, WorkloadSource, cause};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use shared_informer::{Factory, Namespaces, Settings};
use tokio::runtime::Handle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::follow::{Outlet, Registrations, Shared};
pub use self::{
    catalog::{Catalog, NotFound, Resource, ResourceQuery, ResourceRef},
    config::{Config, NamespaceSelection, Narrowing, Target},
    follow::Output,
};
use crate::notify::{self, DRAIN, Limits, Notifier};

/// The time that outputs have at the end to take the last changes.
const LAST_CHANGES: Duration = Duration::from_secs(1);
/// The maximum memory of the objects of one kind, in bytes.
const MAX_BYTES: usize = 1 << 30;
/// The number of resources that are checked concurrently.
const PARALLEL: usize = 4;

/// The intervals and time limits of all parts; tests shorten them.
#[derive(Clone, Debug)]
pub struct Tempo {
    /// The settings of the informers.
    pub informers: Settings,
    /// The interval at which the API server is asked for a resource that it doesn't serve yet.
    pub ask: Duration,
    /// The rate and the timeouts of notifications.
    pub notify: notify::Pace,
}

impl Default for Tempo {
    /// Whole objects are kept, so more bytes are needed than for the fields that node groups depend on.
    fn default() -> Self {
        let informers = Settings { max_bytes: MAX_BYTES, ..Settings::default() };
        Self { informers, ask: Duration::from_secs(5), notify: notify::Pace::default() }
    }
}

/// A running watch.
pub struct Watch {
    shared: Arc<Shared>,
    /// Those of the resources that were served at the start.
    registrations: Registrations,
    notifier: Option<Arc<Notifier>>,
    tasks: TaskTracker,
    ended: CancellationToken,
}

impl Watch {
    /// Checks the configuration against the cluster, and starts to watch. Calls `output` after the checks. Needs a
    /// running multi-thread Tokio runtime.
    ///
    /// # Errors
    /// If a cluster can't be reached, a resource isn't served, a permission is missing, a selector is refused, or the
    /// output can't be started.
    pub async fn start(
        config: Config,
        output: impl FnOnce() -> anyhow::Result<Option<Output>>,
        tempo: Tempo,
    ) -> anyhow::Result<Self> {
        let clients = connect(&config).await?;
        let namespaces = namespaces(&config.namespaces, &clients.watches);
        let found = resolve(&clients.writes, &config).await?;
        check(&clients.writes, &config, &namespaces, &found).await?;
        say_what(&config, &namespaces, &found);
        rights::look_for_cluster(&clients.writes, &config, &found).await;
        let notifier = notifier(&config, tempo.notify)?;
        let outlets = notifier.clone().map(Outlet::Notifier).into_iter().chain(output()?.map(Outlet::Output)).collect();
        let shared = Arc::new(Shared {
            factory: Factory::new(clients.watches, Handle::current(), tempo.informers),
            client: clients.writes,
            namespaces,
            narrowing: config.narrowing,
            ignore: config.ignore,
            cluster: config.target.name(),
            outlets,
            ask: tempo.ask,
        });
        let (tasks, ended) = (TaskTracker::new(), CancellationToken::new());
        let mut registrations = Vec::new();
        for (wanted, resource) in found {
            let Some(resource) = resource else {
                let (shared, ended) = (Arc::clone(&shared), ended.clone());
                tasks.spawn(async move { ended.run_until_cancelled(shared.follow_once_served(wanted)).await });
                continue;
            };
            registrations.extend(shared.start(&wanted, &resource, false));
        }
        tasks.close();
        Ok(Self { shared, registrations, notifier, tasks, ended })
    }

    /// Returns the informers.
    pub fn factory(&self) -> &Factory {
        &self.shared.factory
    }

    /// Ends all tasks and sends queued notifications. Meanwhile it drops the output, awaits `written` and returns its
    /// result.
    pub async fn end<T>(self, written: impl Future<Output = T>) -> T {
        let Self { shared, registrations, notifier, tasks, ended } = self;
        let printed = async {
            ended.cancel();
            tasks.wait().await;
            drop(registrations);
            // A handler may be blocked on an output that nobody reads.
            let _ = tokio::time::timeout(LAST_CHANGES, shared.factory.shutdown()).await;
            drop(shared);
            written.await
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

fn notifier(config: &Config, pace: notify::Pace) -> anyhow::Result<Option<Arc<Notifier>>> {
    if config.rules.is_empty() {
        return Ok(None);
    }
    let started = Notifier::start(config.rules.clone(), Limits::default(), pace, &Handle::current());
    Ok(Some(Arc::new(started.context("notifications")?)))
}

const WORKLOAD: &str = "workload cluster";

async fn connect(config: &Config) -> anyhow::Result<Clients> {
    // If the workload cluster has its own kubeconfig, the management cluster need not be reachable.
    if config.target == Target::Workload
        && let WorkloadSource::Own(source) = &config.workload
    {
        return source.connect().await.context(WORKLOAD);
    }
    let management = config.management.connect().await.context("management cluster")?;
    match config.target {
        Target::Management => Ok(management),
        Target::Workload => config.workload.connect(&management).await.context(WORKLOAD),
    }
}

fn namespaces(place: &NamespaceSelection, client: &Client) -> Namespaces {
    match place {
        NamespaceSelection::All => Namespaces::All,
        NamespaceSelection::Named(names) => Namespaces::Only(names.clone()),
        NamespaceSelection::OfContext => Namespaces::Only(BTreeSet::from([client.default_namespace().to_owned()])),
    }
}

/// Finds each wanted resource by discovery; `None` for one that isn't served.
async fn resolve(client: &Client, config: &Config) -> anyhow::Result<Vec<(ResourceQuery, Option<Resource>)>> {
    let catalog = Catalog::discover(client).await;
    let catalog =
        catalog.map_err(|error| anyhow!("can't ask the API server which kinds it serves: {}", cause(&error)))?;
    let mut found: Vec<(ResourceQuery, Option<Resource>)> = Vec::new();
    for wanted in &config.resources {
        let by_default = matches!(wanted.by, ResourceRef::Kind { .. });
        let resource = match catalog.find(&wanted.by) {
            Ok(resource) => Some(resource),
            Err(NotFound::Unknown(_)) if config.allow_missing || by_default => None,
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
        let same = |(other, known): &(ResourceQuery, Option<Resource>)| {
            *other == narrowed || (known.is_some() && known.as_ref() == resource && other.labels == narrowed.labels)
        };
        if !found.iter().any(same) {
            found.push((narrowed, resource.cloned()));
        }
    }
    if let [(ResourceQuery { by: by @ ResourceRef::Kind { .. }, .. }, None), ..] = &found[..]
        && found.iter().all(|(_, resource)| resource.is_none())
        && !config.allow_missing
    {
        bail!(
            "the API server serves no kind of Cluster API, not even {by}: name another cluster, or RESOURCEs to watch, or \
             wait for it with --allow-missing"
        );
    }
    Ok(found)
}

/// Checks namespaces, rights, selectors and the kinds of rules, so that an error comes before the first change.
async fn check(
    client: &Client,
    config: &Config,
    namespaces: &Namespaces,
    found: &[(ResourceQuery, Option<Resource>)],
) -> anyhow::Result<()> {
    let explicit = matches!(config.namespaces, NamespaceSelection::Named(_));
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
    // A rule may name a kind that isn't served yet.
    if found.iter().all(|(_, resource)| resource.is_some()) {
        for rule in &config.rules {
            if let Some(kind) = rule.unknown_kind(&kinds) {
                bail!(
                    "--notify-rules: rule {:?}: kind {kind:?} is not among what is watched: name it as a RESOURCE too, or \
                     correct it",
                    rule.name
                );
            }
        }
    }
    Ok(())
}

/// Logs the watched resources, since a quiet cluster produces no output for a long time.
fn say_what(config: &Config, namespaces: &Namespaces, found: &[(ResourceQuery, Option<Resource>)]) {
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
