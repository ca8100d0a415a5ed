//! Reads the whole live state of a workload cluster. It asks the index once, for
//! pointers, and converts groups to the schema one by one as they are written: it must never hold a large fleet twice.

use std::time::Instant;

use jiff::Timestamp;
use rules::{Exclusion, GroupId};
use serde::{Serialize, Serializer};

use super::{
    Group, LeftOutObject, Program, SCHEMA_VERSION, State, convert,
    explain::{Explained, explained},
};
use cluster::WorkloadCluster;
use index::{Detail, GroupSnapshot, Snapshot};
use scale::History;
use service::Calls;
use service::listen::{Certificates, Check};

/// The part of the live state that is requested.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Selection {
    /// True if the instances of each group are included.
    pub instances: bool,
    /// The only group to include. If the group doesn't exist, the lists are empty.
    pub group: Option<GroupId>,
}

impl Default for Selection {
    fn default() -> Self {
        Self { instances: true, group: None }
    }
}

impl Selection {
    /// Parses the query of a URL: `instances=false` and `group=<id>`. The last value of each parameter counts.
    ///
    /// # Errors
    /// If the query is invalid. The error text lists the known parameters.
    pub fn parse(query: &str) -> Result<Self, String> {
        let mut selection = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match (&*name, &*value) {
                ("instances", "true" | "") => selection.instances = true,
                ("instances", "false") => selection.instances = false,
                ("instances", _) => return Err(format!("instances is {value:?}: it must be true or false")),
                ("group", id) => {
                    selection.group = Some(GroupId::parse(id).ok_or_else(|| {
                        format!("group is {value:?}: it must be an id, such as MachineDeployment/team-a/workers")
                    })?);
                }
                _ => return Err(format!("parameter {name:?} isn't known: known are instances and group")),
            }
        }
        Ok(selection)
    }
}

/// The check of the informer of Nodes.
const NODES: &str = "workload/nodes";

/// The source of the live state of a workload cluster.
#[derive(Clone)]
pub struct StateSource {
    cluster: WorkloadCluster,
    started_at: Timestamp,
    sources: StatusSources,
}

/// Status sources besides the index; by default they are empty.
#[derive(Clone, Debug, Default)]
pub struct StatusSources {
    /// The last writes and refusals.
    pub history: History,
    /// The last calls of Cluster Autoscaler.
    pub calls: Calls,
    /// The certificates of the gRPC listener, if it has any.
    pub certificates: Option<Certificates>,
}

/// A list whose items are built while it is serialized.
struct Lazy<I>(I);

impl<T: Serialize, I: Iterator<Item = T> + Clone> Serialize for Lazy<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.clone())
    }
}

impl StateSource {
    /// Returns the source of a workload cluster's state, for a program that was started at `started_at`.
    #[must_use]
    pub fn new(cluster: WorkloadCluster, started_at: Timestamp) -> Self {
        Self { cluster, started_at, sources: StatusSources::default() }
    }

    /// Adds further status sources.
    #[must_use]
    pub fn with_sources(mut self, sources: StatusSources) -> Self {
        self.sources = sources;
        self
    }

    /// Returns the live state.
    #[must_use]
    pub fn read(&self, selection: &Selection) -> State {
        let snapshot = self.snapshot(selection);
        let (groups, left_out) =
            (self.groups(&snapshot).collect::<Vec<_>>(), self.left_out(&snapshot).collect::<Vec<_>>());
        self.whole(&snapshot, groups, left_out)
    }

    /// Returns the live state of this group alone, and the report on the group: `None` if the object doesn't exist.
    #[must_use]
    pub fn read_group(&self, id: &GroupId) -> (State, Option<Explained>) {
        let selection = Selection { instances: true, group: Some(id.clone()) };
        let snapshot = self.snapshot(&selection);
        let explained = snapshot.groups.first().and_then(|group| explained(group, &[], self.cluster.keys(), &[]));
        let (groups, left_out) =
            (self.groups(&snapshot).collect::<Vec<_>>(), self.left_out(&snapshot).collect::<Vec<_>>());
        (self.whole(&snapshot, groups, left_out), explained)
    }

    /// Returns the live state for a table of groups. Each group has only the fields of a row, and MachineSets that a
    /// MachineDeployment scales are omitted.
    #[must_use]
    pub fn read_rows(&self) -> State {
        let mut snapshot = self.snapshot(&Selection { instances: false, group: None });
        let is_owned = |group: &GroupSnapshot| {
            group.standing.as_ref().is_err_and(|excluded| excluded.reason == Exclusion::OwnedByMachineDeployment)
        };
        snapshot.groups.retain(|group| !is_owned(group));
        let row = |group: &GroupSnapshot| Some(convert::row(group, group.served()?, &self.sources.history));
        let rows = snapshot.groups.iter().filter_map(row).collect();
        let left_out = self.left_out(&snapshot).collect();
        self.whole(&snapshot, rows, left_out)
    }

    /// Returns the live state without groups and other objects.
    #[must_use]
    pub fn read_bare(&self) -> State {
        self.whole(&Snapshot::default(), Vec::new(), Vec::new())
    }

    /// Returns the live state as JSON.
    ///
    /// # Errors
    /// If a value can't be written as JSON; every value of the schema can.
    pub fn json(&self, selection: &Selection) -> serde_json::Result<Vec<u8>> {
        let snapshot = self.snapshot(selection);
        let (groups, left_out) = (Lazy(self.groups(&snapshot)), Lazy(self.left_out(&snapshot)));
        serde_json::to_vec(&self.whole(&snapshot, groups, left_out))
    }

    fn snapshot(&self, selection: &Selection) -> Snapshot {
        let detail = if selection.instances { Detail::Instances } else { Detail::Counts };
        let mut snapshot = self.cluster.index().snapshot(selection.group.as_ref(), detail);
        snapshot.groups.sort_by(|a, b| a.id.cmp(&b.id));
        snapshot
    }

    /// Returns true if all Nodes of the workload cluster are known.
    fn has_nodes(&self) -> bool {
        let is_ready = |check: &Check| check.name == NODES && check.is_ready();
        self.cluster.reads_nodes() && self.cluster.checks().iter().any(is_ready)
    }

    fn whole<G, L>(&self, snapshot: &Snapshot, groups: G, left_out: L) -> State<G, L> {
        let (checks, now) = (self.cluster.checks(), Instant::now());
        State {
            schema_version: SCHEMA_VERSION,
            program: Program { version: env!("CARGO_PKG_VERSION").to_owned(), started_at: self.started_at },
            taken_at: Timestamp::now(),
            ready: checks.iter().all(Check::is_ready),
            checks,
            calls: convert::calls(&self.sources.calls, now),
            tls: self.sources.certificates.as_ref().map(Certificates::standing),
            clusters: convert::clusters(self.cluster.informers(), self.cluster.reads_nodes(), now),
            machines: snapshot.machines as u64,
            nodes: snapshot.nodes as u64,
            groups,
            left_out,
        }
    }

    fn groups<'a>(&'a self, snapshot: &'a Snapshot) -> impl Iterator<Item = Group> + Clone + use<'a> {
        let has_nodes = self.has_nodes();
        let history = &self.sources.history;
        let group = move |group: &GroupSnapshot| Some(convert::group(group, group.served()?, history, has_nodes));
        snapshot.groups.iter().filter_map(group)
    }

    fn left_out<'a>(&'a self, snapshot: &'a Snapshot) -> impl Iterator<Item = LeftOutObject> + Clone + use<'a> {
        let left_out = |group: &GroupSnapshot| convert::left_out(group, self.sources.history.of(&group.id));
        snapshot.groups.iter().filter_map(left_out)
    }
}
