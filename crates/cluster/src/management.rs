//! The management cluster: discovery of Cluster API's kinds, and the informers that the indexes of all workload
//! clusters share. Discovery is repeated, since kinds may be installed or upgraded at any time.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use rules::capi::Context;
use shared_informer::{Factory, Settings, Spawner};
use tokio::{sync::watch, time::sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use connect::Clients;
use connect::discovery::{CoreResources, discover_core};

/// The interval at which discovery is repeated after a success.
const REDISCOVER: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// The part of the informers' shared limit of bytes that infrastructure templates may use, as its divisor: whoever may
/// write templates must leave place for all other kinds.
const OF_TEMPLATES: usize = 5;

/// The options for reading a management cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ManagementOptions {
    /// Cluster API's group (`CAPI_GROUP`).
    pub group: String,
    /// Cluster API's version (`CAPI_VERSION`); `None` for the preferred one.
    pub version: Option<String>,
    /// The settings of the informers.
    pub informers: Settings,
}

/// A management cluster, shared by the workload clusters that it manages.
#[derive(Clone)]
pub struct Management {
    inner: Arc<Inner>,
}

struct Inner {
    clients: Clients,
    context: Arc<Context>,
    factory: Factory,
    /// The same for infrastructure templates.
    of_templates: Factory,
    options: ManagementOptions,
    resources: Arc<ArcSwapOption<CoreResources>>,
    announced: watch::Sender<Option<Arc<CoreResources>>>,
    /// The error of the last discovery; `None` after a success.
    failure: Mutex<Option<String>>,
    tasks: TaskTracker,
    ended: CancellationToken,
}

impl Management {
    /// Starts discovery in the background, and returns at once.
    pub fn start(clients: Clients, options: ManagementOptions, runtime: impl Into<Spawner>) -> Self {
        let runtime = runtime.into();
        let context = Context::new(&options.group);
        let factory = Factory::new(clients.watches.clone(), runtime.clone(), options.informers.clone())
            .with_texts(Arc::clone(&context.interner));
        let of_templates = options.informers.shared_limit.as_ref();
        let of_templates =
            of_templates.map(|limit| limit.part("all infrastructure templates", limit.max_bytes() / OF_TEMPLATES));
        let inner = Arc::new(Inner {
            of_templates: factory.clone().with_shared_limit(of_templates),
            factory,
            context,
            clients,
            options,
            resources: Arc::new(ArcSwapOption::empty()),
            announced: watch::Sender::new(None),
            failure: Mutex::new(Some("discovery hasn't answered yet".to_owned())),
            tasks: TaskTracker::new(),
            ended: CancellationToken::new(),
        });
        let management = Self { inner };
        let task = management.clone();
        let discovery = async move {
            let ended = task.inner.ended.clone();
            ended.run_until_cancelled(task.discover_forever()).await;
        };
        runtime.spawn_tracked(&management.inner.tasks, discovery);
        management
    }

    async fn discover_forever(&self) {
        let inner = &self.inner;
        let mut pause = FIRST_PAUSE;
        loop {
            let options = &inner.options;
            match discover_core(&inner.clients.writes, &options.group, options.version.as_deref()).await {
                Ok(found) => {
                    *inner.failure.lock() = None;
                    pause = FIRST_PAUSE;
                    self.announce(found);
                    sleep(REDISCOVER).await;
                }
                Err(error) => {
                    let why = error.reason();
                    let reported = inner.failure.lock().replace(why.clone());
                    if reported.as_ref() != Some(&why) {
                        tracing::warn!("can't discover Cluster API's kinds on the management cluster: {why}");
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    fn announce(&self, found: CoreResources) {
        let found = Arc::new(found);
        self.inner.resources.store(Some(Arc::clone(&found)));
        self.inner.announced.send_if_modified(|known| {
            let changed = known.as_deref() != Some(&*found);
            if changed {
                tracing::info!(
                    api_version = found.api_version(),
                    missing = found.missing().join(", "),
                    "Cluster API is served"
                );
                *known = Some(found);
            }
            changed
        });
    }

    /// Returns a channel with the discovered core kinds. The value changes when the API server serves them differently.
    pub(super) fn announced(&self) -> watch::Receiver<Option<Arc<CoreResources>>> {
        self.inner.announced.subscribe()
    }

    /// Returns the core kinds, for writes.
    pub fn resources(&self) -> Arc<ArcSwapOption<CoreResources>> {
        Arc::clone(&self.inner.resources)
    }

    /// Returns the reason for which discovery hasn't succeeded yet, or `None` once it has. After a later failure the
    /// last result stays in force.
    pub(super) fn discovery_problem(&self) -> Option<String> {
        if self.inner.resources.load().is_some() { None } else { self.inner.failure.lock().clone() }
    }

    /// Returns the clients.
    pub fn clients(&self) -> &Clients {
        &self.inner.clients
    }

    /// Returns the annotation keys in force, and the interner.
    pub fn context(&self) -> &Arc<Context> {
        &self.inner.context
    }

    /// Returns the factory of the informers.
    pub fn factory(&self) -> &Factory {
        &self.inner.factory
    }

    /// Returns the factory of the informers of infrastructure templates. Both have the same informers.
    pub(super) fn factory_of_templates(&self) -> &Factory {
        &self.inner.of_templates
    }

    /// Stops discovery and all informers, and waits for their tasks.
    pub async fn shutdown(&self) {
        self.inner.ended.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
        self.inner.factory.shutdown().await;
    }
}
