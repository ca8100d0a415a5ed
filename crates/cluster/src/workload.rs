//! A single workload cluster: its index, the management cluster's kinds that feed it, its own Nodes, and the sync of
//! all of them.

use std::{sync::Arc, time::Duration};

use nodegroup::Rules;
use shared_informer::{Namespaces, Settings, Spawner, Status};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    core_kinds::{CoreKinds, NamedHealth},
    management::Management,
    templates::{KindStates, Templates, not_followed},
    templates_at_start::{FIRST_TEMPLATES, TemplatesAtStart},
    workload_nodes::{NODES, WorkloadNodes},
};
use connect::{Pace, WorkloadSource};
use index::{Freshness, Index, KindState};
use server::{Check, Checks};

/// The options for reading a workload cluster.
#[derive(Clone, Debug)]
pub struct WorkloadOptions {
    /// The rules of its groups, including its scope.
    pub rules: Rules,
    /// The source of its clients.
    pub source: WorkloadSource,
    /// The time for which a watch may be broken before Refresh fails.
    pub max_staleness: Duration,
    /// The settings of the informers.
    pub informers: Settings,
}

/// One workload cluster.
#[derive(Clone)]
pub struct Workload {
    inner: Arc<Inner>,
}

struct Inner {
    index: Arc<Index>,
    rules: Rules,
    core: CoreKinds<Index>,
    nodes: WorkloadNodes,
    templates: KindStates,
    at_start: TemplatesAtStart,
    spawner: Spawner,
    tasks: TaskTracker,
    ended: CancellationToken,
}

impl Workload {
    /// Starts to follow a workload cluster in the background, and returns at once.
    #[must_use]
    pub fn start(management: Management, options: WorkloadOptions, runtime: impl Into<Spawner>) -> Self {
        let WorkloadOptions { rules, source, max_staleness, informers } = options;
        let namespaces = match rules.scope.namespaces() {
            None => Namespaces::All,
            Some(namespaces) => Namespaces::Only(namespaces),
        };
        let spawner = runtime.into();
        let index = Arc::new(Index::new(rules.clone()).in_first_sync());
        let workload = Self {
            inner: Arc::new(Inner {
                core: CoreKinds::new(management, Arc::clone(&index), namespaces, max_staleness),
                nodes: WorkloadNodes::new(Arc::clone(&index), source, Pace::default(), informers, spawner.clone()),
                index,
                rules,
                templates: KindStates::default(),
                at_start: TemplatesAtStart::default(),
                spawner,
                tasks: TaskTracker::new(),
                ended: CancellationToken::new(),
            }),
        };
        let inner = &workload.inner;
        let templates = Arc::new(Templates {
            management: inner.core.management().clone(),
            sink: Arc::clone(&inner.index),
            namespaces: inner.core.namespaces().clone(),
            states: Arc::clone(&inner.templates),
            left_out: Arc::clone(inner.core.left_out()),
            spawner: inner.spawner.clone(),
        });
        workload.spawn(templates.follow(inner.tasks.clone(), inner.ended.clone()));
        let task = workload.clone();
        workload.spawn(async move { task.inner.core.follow().await });
        let task = workload.clone();
        workload.spawn(async move { task.inner.nodes.follow(task.inner.core.management()).await });
        if inner.core.has_several_namespaces() {
            let task = workload.clone();
            workload.spawn(async move { task.inner.core.follow_namespaces().await });
        }
        workload
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let ended = self.inner.ended.clone();
        self.inner.spawner.spawn_tracked(&self.inner.tasks, async move {
            ended.run_until_cancelled(task).await;
        });
    }

    /// Returns the index.
    #[must_use]
    pub fn index(&self) -> &Arc<Index> {
        &self.inner.index
    }

    /// Returns the rules of its groups.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.inner.rules
    }

    /// Returns true unless its Nodes are left out on purpose.
    #[must_use]
    pub fn reads_nodes(&self) -> bool {
        !self.inner.nodes.are_off()
    }

    /// Returns each kind that must be in sync by name, with the reason if it isn't.
    fn problems(&self) -> Vec<(&'static str, Option<String>)> {
        self.inner.core.problems(|| self.nodes())
    }

    /// Returns the health of the Nodes, if they are read.
    fn nodes(&self) -> Vec<NamedHealth> {
        let nodes = &self.inner.nodes;
        if nodes.are_off() { Vec::new() } else { vec![(NODES, nodes.health())] }
    }

    /// Returns true if the start still waits for templates, given that the core kinds are in sync.
    fn awaits_templates(&self) -> bool {
        self.inner.at_start.are_awaited(&self.inner.index)
    }

    /// Returns the statuses of the informers that feed this index, with the cluster they watch.
    #[must_use]
    pub fn informers(&self) -> Vec<(&'static str, Status)> {
        let management = self.inner.core.management().factory().statuses();
        let management = management.into_iter().map(|status| ("management", status));
        let workload = self.inner.nodes.informers();
        management.chain(workload.into_iter().map(|status| ("workload", status))).collect()
    }

    /// Stops all tasks. The shared informers of the management cluster continue.
    pub async fn shutdown(&self) {
        let inner = &self.inner;
        inner.ended.cancel();
        inner.tasks.close();
        inner.tasks.wait().await;
        inner.core.end();
        inner.nodes.shutdown().await;
    }
}

impl Freshness for Workload {
    fn check(&self) -> Result<(), String> {
        let missing: Vec<_> =
            self.problems().into_iter().filter_map(|(name, problem)| Some(format!("{name}: {}", problem?))).collect();
        match missing.is_empty() {
            false => Err(missing.join("; ")),
            true if self.awaits_templates() => Err(format!("templates: {FIRST_TEMPLATES}")),
            true => Ok(()),
        }
    }
}

impl Checks for Workload {
    fn checks(&self) -> Vec<Check> {
        let core = self.inner.core.checks(|| self.nodes());
        let awaited = core.iter().all(Check::is_ready) && self.awaits_templates();
        let templates = self.inner.templates.lock();
        let (followed, others): (Vec<_>, Vec<_>) = templates.iter().partition(|(_, known)| known.is_followed);
        let templates = followed.into_iter().map(|(kind, known)| {
            let name = format!("templates/{kind}");
            match &known.state {
                KindState::Synced => Check::ready(name),
                KindState::Pending if awaited => Check::pending(name, FIRST_TEMPLATES),
                KindState::Pending => Check::informational(name, FIRST_TEMPLATES),
                KindState::Unreadable(why) => Check::informational(name, &**why),
            }
        });
        let templates = templates.chain(not_followed(&others));
        let mut checks: Vec<_> = core.into_iter().chain(self.inner.core.unread_namespaces()).chain(templates).collect();
        // A kind that a group has just named has no state of its own yet.
        if awaited && checks.iter().all(Check::is_ready) {
            checks.push(Check::pending("templates", FIRST_TEMPLATES));
        }
        checks
    }
}
