//! Cluster API's controllers, for a simulator that decides when each of them sees a change, and when it makes its next
//! write; and for [`crate::Simulation`], where all of them see everything at once.
//!
//! Nothing here runs by itself: the driver lets a controller's view of a kind catch up ([`Controllers::observe`]) and
//! has a controller take one step ([`Controllers::step`]): begin a reconcile, or make one of its writes. All reads of a
//! reconcile come from these views, which lag behind the API and never go back; between two writes of one reconcile the
//! rest of the world goes on. The rules of their behaviour are in `crate::controllers`.

mod kind;
mod member;
mod others;
mod reconcile;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::large_types_passed_by_value, reason = "tests")]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;

pub use self::{
    kind::{Act, Controller, Fault, Kind, Observed, Step},
    others::HealthCheck,
};
use self::{
    member::{Feed, Member, ObjectKey, key_of},
    others::Server,
};
pub use crate::controllers::{
    machine::{Fate, Hook, HookPoint, Plugin, Rejoin, Unready},
    machine_pool::PoolWays,
};
use crate::{
    api::{Api, Resource, Selection},
    clock::Clock,
    controllers::{
        CapiVersion, Side, keys, machine, machine_deployment, machine_pool,
        object::{Names, Object as _},
    },
    settings::{Contract, GroupKey, Models, Settings, Times},
};

/// The settings of the controllers.
#[derive(Clone, Debug)]
pub struct Options {
    /// The version of Cluster API whose behaviour they have.
    pub version: CapiVersion,
    /// The contract version of objects, and the times of MachinePools, and of Machines whose [`Fate`] isn't decided.
    pub settings: Settings,
    /// The number of objects that a controller reconciles concurrently.
    pub workers: usize,
    /// The behaviour of the infrastructure of MachinePools that have Machines; `None` if MachinePools have none.
    pub pools: Option<PoolWays>,
    /// The check by which unhealthy Machines are deleted; `None` to delete none.
    pub health: Option<HealthCheck>,
    /// The namespace and name of the Cluster whose objects alone they see, in a management cluster with several; `None`
    /// for all.
    pub cluster: Option<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            version: CapiVersion::default(),
            settings: Settings::default(),
            workers: 10,
            pools: None,
            health: None,
            cluster: None,
        }
    }
}

/// The function that decides the fate of a Machine when it is first seen.
pub(crate) type Fates = Box<dyn FnMut(&Value) -> Fate + Send>;

/// The API of each workload cluster, by the namespace and the name of its Cluster.
pub(crate) type WorkloadApis = BTreeMap<ObjectKey, Api>;

/// The workload clusters of a management cluster.
#[derive(Clone, Debug)]
pub(crate) enum Workloads {
    Shared(Api),
    OfClusters(Arc<WorkloadApis>),
}

impl Workloads {
    fn of(&self, object: &Value) -> Option<&Api> {
        match self {
            Self::Shared(api) => Some(api),
            Self::OfClusters(apis) => apis.get(&cluster_key(object)?),
        }
    }

    /// Returns a number that grows with each change.
    fn revision(&self) -> u64 {
        match self {
            Self::Shared(api) => api.revision(),
            Self::OfClusters(apis) => apis.values().map(Api::revision).sum(),
        }
    }

    fn all(&self) -> Vec<&Api> {
        match self {
            Self::Shared(api) => vec![api],
            Self::OfClusters(apis) => apis.values().collect(),
        }
    }
}

/// The APIs that controllers read themselves.
#[derive(Clone, Debug)]
struct Live {
    management: Api,
    workloads: Workloads,
    contract: Contract,
}

impl Live {
    fn resource(&self, kind: Kind) -> Resource {
        kind.resource(self.contract)
    }
}

/// The controllers of an API.
pub struct Controllers {
    management: Api,
    workloads: Workloads,
    /// True if they see everything at once.
    is_live: bool,
    clock: Clock,
    options: Options,
    /// True while every reconcile of a MachineSet ends with an error.
    is_ailing: bool,
    /// Decides the fates of Machines; without it their labels do, whenever one is looked at.
    fates: Option<Fates>,
    names: Names,
    /// The number of reconciles that have begun.
    reconciles: u64,
    /// The feeds, by kind.
    feeds: Vec<Feed>,
    /// The memories, by controller.
    members: Vec<Member>,
    /// The revisions of both APIs up to which the feeds have been read.
    pulled: [u64; 2],
    /// The fates and steps by uid, which outlast the controllers, as infrastructure does.
    fate_of: BTreeMap<String, Fate>,
    machines: BTreeMap<String, machine::Steps>,
    pools: BTreeMap<String, machine_pool::Steps>,
    infrastructures: BTreeMap<String, machine_pool::Infrastructure>,
    servers: BTreeMap<ObjectKey, Server>,
    /// The time since which a Node that a Machine refers to isn't seen, by the Machine's uid.
    missing: BTreeMap<String, Option<Timestamp>>,
    /// The time since which the deletion of a Machine is held, by its uid.
    held: BTreeMap<String, Option<Timestamp>>,
}

impl fmt::Debug for Controllers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Controllers").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Controllers {
    /// Creates controllers that have just started: their views are up to date, and all objects are queued.
    pub fn new(management: &Api, workload: &Api, clock: Clock, options: Options, fates: Fates) -> Self {
        let management = management.as_manager(machine_deployment::MANAGER);
        let workload = workload.as_manager(machine_deployment::MANAGER);
        let feeds = Kind::ALL.map(|kind| {
            let api = if kind.side() == Side::Workload { &workload } else { &management };
            Feed::new(api.clone(), kind.resource(options.settings.contract), options.cluster.clone())
        });
        let workloads = Workloads::Shared(workload);
        Self::with(management, workloads, clock, options, feeds.into(), Some(fates))
    }

    /// Creates controllers that see everything at once. They take the present objects as settled, and read them only when
    /// they change.
    pub(crate) fn live(management: &Api, workloads: Workloads, clock: Clock, settings: Settings) -> Self {
        let management = management.as_manager(machine_deployment::MANAGER);
        let feeds = Kind::ALL.map(|kind| {
            let apis = if kind.side() == Side::Workload { workloads.all() } else { vec![&management] };
            Feed::live(apis, kind.resource(settings.contract))
        });
        let options = Options { settings, ..Options::default() };
        Self::with(management, workloads, clock, options, feeds.into(), None)
    }

    fn with(
        management: Api,
        workloads: Workloads,
        clock: Clock,
        options: Options,
        feeds: Vec<Feed>,
        fates: Option<Fates>,
    ) -> Self {
        let mut controllers = Self {
            management,
            workloads,
            is_live: fates.is_none(),
            clock,
            options,
            is_ailing: false,
            fates,
            names: Names::default(),
            reconciles: 0,
            feeds,
            members: Vec::new(),
            pulled: [0; 2],
            fate_of: BTreeMap::new(),
            machines: BTreeMap::new(),
            pools: BTreeMap::new(),
            infrastructures: BTreeMap::new(),
            servers: BTreeMap::new(),
            missing: BTreeMap::new(),
            held: BTreeMap::new(),
        };
        controllers.decide_fates(0);
        controllers.members = Controller::ALL.map(|controller| controllers.started(controller)).into();
        controllers
    }

    fn started(&self, controller: Controller) -> Member {
        let views = controller.reads().iter().map(|kind| (*kind, self.feeds[*kind as usize].present())).collect();
        let live = self.is_live.then(|| Live {
            management: self.management.clone(),
            workloads: self.workloads.clone(),
            contract: self.options.settings.contract,
        });
        Member::new(controller, views, live)
    }

    /// Returns receivers that are notified of changes in the management cluster and in the workload clusters.
    pub fn subscribe(&self) -> Vec<watch::Receiver<u64>> {
        [&self.management].into_iter().chain(self.workloads.all()).map(Api::subscribe).collect()
    }

    /// Changes the times of Machines whose fate isn't decided, and of MachinePools.
    pub(crate) fn set_times(&mut self, times: Times) {
        self.options.settings.times = times;
    }

    /// Changes what new Nodes are like, and looks again at all that may have waited for a model.
    pub(crate) fn set_models(&mut self, models: Models) {
        self.options.settings.models = Some(Arc::new(models));
        for controller in [Controller::MachinePool, Controller::Kubelet] {
            let resource = controller.of().resource(self.options.settings.contract);
            let objects = self.management.list(&resource, &Selection::default()).unwrap_or_default();
            for object in objects {
                self.members[controller as usize].queue.add(key_of(&object));
            }
        }
    }

    fn fate(&self, machine: &Value) -> Fate {
        let decided = self.fate_of.get(machine.uid()).copied();
        decided
            .unwrap_or_else(|| Fate::of_label(machine, self.options.settings.times_of(|| groups_of_machine(machine))))
    }

    /// Returns the version of Cluster API whose behaviour they have.
    pub fn version(&self) -> CapiVersion {
        self.options.version
    }

    /// Lets every reconcile of a MachineSet end with an error after its work, as a single Machine without its
    /// infrastructure object does in Cluster API. Since 1.11 the MachineSet's `status.observedGeneration` doesn't
    /// change then.
    pub fn set_ailing(&mut self, is_ailing: bool) {
        self.is_ailing = is_ailing;
    }

    /// Restarts a controller: its memory is lost, and it lists everything again.
    pub fn restart(&mut self, controller: Controller) {
        self.pull();
        self.members[controller as usize] = self.started(controller);
    }

    /// Reads the changes without showing them to any controller.
    fn pull(&mut self) {
        let now = [self.management.revision(), self.workloads.revision()];
        if now == self.pulled {
            return;
        }
        self.pulled = now;
        for kind in Kind::ALL {
            let first = self.feeds[kind as usize].pull();
            if kind == Kind::Machine {
                self.decide_fates(first);
            }
        }
    }

    fn decide_fates(&mut self, first: u64) {
        let Some(fates) = &mut self.fates else { return };
        let feed = &self.feeds[Kind::Machine as usize];
        for change in (first..feed.end()).filter_map(|number| feed.get(number)) {
            let uid = change.object.uid();
            if !self.fate_of.contains_key(uid) {
                self.fate_of.insert(uid.to_owned(), fates(&change.object));
            }
        }
    }

    /// Returns the number of changes of a kind that a controller hasn't seen; 0 for a kind that it doesn't read.
    pub fn behind(&mut self, controller: Controller, kind: Kind) -> u64 {
        self.pull();
        let end = self.feeds[kind as usize].end();
        self.members[controller as usize].view(kind).map_or(0, |view| end - view.position)
    }

    /// Shows a controller at most `most` further changes of a kind. Returns their number.
    pub fn observe(&mut self, controller: Controller, kind: Kind, most: u64) -> u64 {
        self.pull();
        self.show(controller, kind, most)
    }

    fn show(&mut self, controller: Controller, kind: Kind, most: u64) -> u64 {
        let feed = &self.feeds[kind as usize];
        let seen = self.members[controller as usize].observe(kind, feed, most);
        if seen > 0 {
            self.forget(kind);
        }
        seen
    }

    /// Drops the changes that all controllers have seen.
    fn forget(&mut self, kind: Kind) {
        let views = self.members.iter().filter_map(|member| member.view(kind));
        if let Some(oldest) = views.map(|view| view.position).min() {
            self.feeds[kind as usize].forget(oldest);
        }
    }

    fn observe_all(&mut self) {
        self.pull();
        for controller in Controller::ALL {
            for kind in controller.reads() {
                self.show(controller, *kind, u64::MAX);
            }
        }
    }

    /// Returns true if a controller has a step to take now.
    pub fn has_work(&mut self, controller: Controller) -> bool {
        let now = self.clock.now();
        self.members[controller as usize].has_work(now, &self.options)
    }

    /// Returns the time of a controller's next step if it sees no change.
    pub fn next(&self, controller: Controller) -> Option<Timestamp> {
        self.members[controller as usize].next()
    }

    /// Has a controller take a step, with at most one write. If it could continue several reconciles, or begin another
    /// one, `pick` chooses. Returns `None` if it has nothing to do.
    pub fn step(&mut self, controller: Controller, pick: u64, fault: Fault) -> Option<Step> {
        self.pull();
        self.advance(controller, pick, fault)
    }

    fn advance(&mut self, controller: Controller, pick: u64, fault: Fault) -> Option<Step> {
        let now = self.clock.now();
        let member = &mut self.members[controller as usize];
        if !member.has_work(now, &self.options) {
            return None;
        }
        let step = match member.choose(pick, now, &self.options) {
            Some(number) => self.go_on(controller, number, fault, now),
            None => self.begin(controller, now)?,
        };
        Some(step)
    }

    /// Shows everything to all controllers, and takes at most `most` rounds of steps without faults until nothing is
    /// left to do at this time. Returns false if that wasn't enough.
    pub fn settle(&mut self, most: usize) -> bool {
        for _ in 0..most {
            self.observe_all();
            let mut is_idle = true;
            for controller in Controller::ALL {
                is_idle &= self.advance(controller, 0, Fault::None).is_none();
            }
            if is_idle {
                return true;
            }
        }
        false
    }
}

/// Returns the delay of the next retry after failures, as in a workqueue of client-go.
fn backoff(failures: u32) -> Duration {
    let milliseconds = 5_u64.saturating_mul(1 << failures.saturating_sub(1).min(20));
    Duration::from_millis(milliseconds.min(1_000_000))
}

/// Sets of keys, by the key of a Cluster.
type Parked = BTreeMap<ObjectKey, BTreeSet<ObjectKey>>;

fn cluster_key(object: &Value) -> Option<ObjectKey> {
    Some((object.namespace().to_owned(), object.text("/spec/clusterName")?.to_owned()))
}

/// Returns the groups that a Machine may be of, the one that is scaled first.
fn groups_of_machine(machine: &Value) -> Vec<GroupKey> {
    let key = |kind: &str, name: &str| (kind.to_owned(), machine.namespace().to_owned(), name.to_owned());
    let deployment = machine.label(keys::DEPLOYMENT_NAME).map(|name| key("MachineDeployment", name));
    let owner = machine.controller().and_then(|owner| Some(key(owner["kind"].as_str()?, owner["name"].as_str()?)));
    deployment.into_iter().chain(owner).collect()
}

fn owning_set(machine: &Value) -> Option<ObjectKey> {
    let owner = machine.controller()?;
    let name = owner["name"].as_str().filter(|_| owner["kind"] == Kind::MachineSet.as_str())?;
    Some((machine.namespace().to_owned(), name.to_owned()))
}

fn same(one: &Arc<Value>, other: &Value) -> bool {
    one.uid() == other.uid() && key_of(one) == key_of(other)
}
