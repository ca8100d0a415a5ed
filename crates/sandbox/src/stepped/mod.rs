//! Cluster API's controllers for a simulator that decides when each of them sees what, and when it does its next write.
//!
//! Nothing here runs by itself: whoever drives it lets a controller's view of a kind catch up ([`Controllers::observe`])
//! and has a controller do one step ([`Controllers::step`]): begin a reconcile, or do one of its writes. All reads of a
//! reconcile come from these views, which lag behind the API and never go back; between two writes of one reconcile the
//! rest of the world goes on. The rules by which they act are those of `crate::controllers`.

mod fate;
mod health;
mod hooks;
mod kind;
mod kubelet;
mod member;
mod reconcile;
mod step;
mod view;
mod write;

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
    fate::{Fate, Hook, HookPoint, Rejoin, Unready},
    health::HealthCheck,
    kind::{Controller, Kind},
    step::{Act, Fault, Observed, Step},
};
use self::{
    kubelet::Server,
    member::Member,
    view::{Feed, ObjectKey, key_of},
};
pub use crate::controllers::pool_machines::PoolWays;
use crate::{
    api::Api,
    clock::Clock,
    controllers::{
        CapiVersion, machine, machine_pool, names::Names, object::Object as _, passed_on, plan::Side, pool_machines,
    },
    settings::Settings,
};

/// The settings of the controllers.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whose ways they have.
    pub version: CapiVersion,
    /// The shape of objects, and how long things take for MachinePools. Machines go by their [`Fate`].
    pub settings: Settings,
    /// The number of objects that a controller reconciles at a time.
    pub workers: usize,
    /// The ways of the infrastructure of MachinePools that have Machines; `None` if MachinePools have none.
    pub pools: Option<PoolWays>,
    /// The check by which unhealthy Machines are deleted; `None` deletes none.
    pub health: Option<HealthCheck>,
}

impl Default for Options {
    fn default() -> Self {
        Self { version: CapiVersion::default(), settings: Settings::default(), workers: 10, pools: None, health: None }
    }
}

/// Decides how a Machine turns out, when it is first seen.
pub type Fates = Box<dyn FnMut(&Value) -> Fate + Send>;

/// The controllers of an API.
pub struct Controllers {
    management: Api,
    workload: Api,
    clock: Clock,
    options: Options,
    /// Set while every reconcile of a MachineSet ends with an error.
    is_ailing: bool,
    fates: Fates,
    names: Names,
    /// The number of reconciles that have begun.
    reconciles: u64,
    /// By kind.
    feeds: Vec<Feed>,
    /// By controller.
    members: Vec<Member>,
    /// Up to which revision of either API the feeds have been read.
    pulled: [u64; 2],
    /// By uid: these outlast the controllers, as infrastructure does.
    fate_of: BTreeMap<String, Fate>,
    machines: BTreeMap<String, machine::Steps>,
    pools: BTreeMap<String, machine_pool::Steps>,
    infrastructures: BTreeMap<String, pool_machines::Infrastructure>,
    servers: BTreeMap<ObjectKey, Server>,
    /// Since when a Node that a Machine refers to isn't seen, by the Machine's uid.
    missing: BTreeMap<String, Option<Timestamp>>,
    /// Since when the deletion of a Machine is held, by its uid.
    held: BTreeMap<String, Option<Timestamp>>,
}

impl fmt::Debug for Controllers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Controllers").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Controllers {
    /// Controllers that have just started: their views are up to date, and they are to look at every object.
    #[must_use]
    pub fn new(management: &Api, workload: &Api, clock: Clock, options: Options, fates: Fates) -> Self {
        let management = management.as_manager(passed_on::MANAGER);
        let workload = workload.as_manager(passed_on::MANAGER);
        let feeds = Kind::ALL.map(|kind| {
            let api = if kind.side() == Side::Workload { &workload } else { &management };
            Feed::new(api.clone(), kind.resource(options.settings.contract))
        });
        let mut controllers = Self {
            management,
            workload,
            clock,
            options,
            is_ailing: false,
            fates,
            names: Names::default(),
            reconciles: 0,
            feeds: feeds.into(),
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
        Member::new(controller, views)
    }

    /// For who waits until something changes in the management cluster or in the workload cluster.
    #[must_use]
    pub fn subscribe(&self) -> [watch::Receiver<u64>; 2] {
        [self.management.subscribe(), self.workload.subscribe()]
    }

    /// Whose ways they have.
    #[must_use]
    pub fn version(&self) -> CapiVersion {
        self.options.version
    }

    /// Lets every reconcile of a MachineSet end with an error after its work, as one Machine without its infrastructure object
    /// does. Since Cluster API 1.11 its `status.observedGeneration` stays as it is then.
    pub fn set_ailing(&mut self, is_ailing: bool) {
        self.is_ailing = is_ailing;
    }

    /// A restart: what a controller had in memory is lost, and it lists everything anew.
    pub fn restart(&mut self, controller: Controller) {
        self.pull();
        self.members[controller as usize] = self.started(controller);
    }

    /// Reads what has changed, without showing it to any controller.
    fn pull(&mut self) {
        let now = [self.management.revision(), self.workload.revision()];
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
        let feed = &self.feeds[Kind::Machine as usize];
        for change in (first..feed.end()).filter_map(|number| feed.get(number)) {
            let uid = change.object.uid();
            if !self.fate_of.contains_key(uid) {
                self.fate_of.insert(uid.to_owned(), (self.fates)(&change.object));
            }
        }
    }

    /// The number of changes of a kind that a controller hasn't seen; 0 for a kind that it doesn't read.
    pub fn behind(&mut self, controller: Controller, kind: Kind) -> u64 {
        self.pull();
        let end = self.feeds[kind as usize].end();
        self.members[controller as usize].view(kind).map_or(0, |view| end - view.position)
    }

    /// Shows a controller the next changes of a kind, `most` of them at most. Returns how many.
    pub fn observe(&mut self, controller: Controller, kind: Kind, most: u64) -> u64 {
        self.pull();
        let feed = &self.feeds[kind as usize];
        let member = &mut self.members[controller as usize];
        let seen = member.observe(kind, feed, most);
        if seen > 0 {
            self.forget(kind);
        }
        seen
    }

    /// Changes that all controllers have seen are held no longer.
    fn forget(&mut self, kind: Kind) {
        let views = self.members.iter().filter_map(|member| member.view(kind));
        if let Some(oldest) = views.map(|view| view.position).min() {
            self.feeds[kind as usize].forget(oldest);
        }
    }

    /// Shows everything to everyone.
    pub fn observe_all(&mut self) {
        for controller in Controller::ALL {
            for kind in controller.reads() {
                self.observe(controller, *kind, u64::MAX);
            }
        }
    }

    /// Returns true if a controller has a step to do now.
    pub fn has_work(&mut self, controller: Controller) -> bool {
        let now = self.clock.now();
        self.members[controller as usize].has_work(now, &self.options)
    }

    /// When a controller has something to do again, though it sees nothing new.
    #[must_use]
    pub fn next(&self, controller: Controller) -> Option<Timestamp> {
        self.members[controller as usize].next()
    }

    /// Has a controller do a step: one write at most. Where it could go on with several reconciles, or begin another one,
    /// `pick` chooses. `None` if it has nothing to do.
    pub fn step(&mut self, controller: Controller, pick: u64, fault: Fault) -> Option<Step> {
        self.pull();
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

    /// Lets everyone see everything and do all there is to do at this time, without faults, by at most `most` steps.
    /// Returns `false` if that wasn't enough.
    pub fn settle(&mut self, most: usize) -> bool {
        for _ in 0..most {
            self.observe_all();
            let mut is_idle = true;
            for controller in Controller::ALL {
                is_idle &= self.step(controller, 0, Fault::None).is_none();
            }
            if is_idle {
                return true;
            }
        }
        false
    }
}

/// The pause before the next try after failed ones, as a workqueue of client-go has it.
fn backoff(failures: u32) -> Duration {
    let milliseconds = 5_u64.saturating_mul(1 << failures.saturating_sub(1).min(20));
    Duration::from_millis(milliseconds.min(1_000_000))
}

/// A set of keys by the key of a Cluster.
type Parked = BTreeMap<ObjectKey, BTreeSet<ObjectKey>>;

/// The key of the Cluster that an object names.
fn cluster_key(object: &Value) -> Option<ObjectKey> {
    Some((object.namespace().to_owned(), object.text("/spec/clusterName")?.to_owned()))
}

/// The name of the MachineSet that controls a Machine.
fn owning_set(machine: &Value) -> Option<ObjectKey> {
    let owner = machine.controller()?;
    let name = owner["name"].as_str().filter(|_| owner["kind"] == Kind::MachineSet.as_str())?;
    Some((machine.namespace().to_owned(), name.to_owned()))
}

fn same(one: &Arc<Value>, other: &Value) -> bool {
    one.uid() == other.uid() && key_of(one) == key_of(other)
}
