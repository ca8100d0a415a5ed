//! The rules for every revision of the API and every answer of the program. They read only objects and messages, never
//! the program's own state, and must share no rule with it.

mod answers;
mod calls;
mod deletions;
mod fleet;
mod memory;
mod objects;
mod refusals;
mod rest;
mod sizes;
mod taken;
mod watches;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    fmt,
};

use sandbox::{
    api::{Api, Resource, Selection},
    engine::Observed,
};
use serde_json::Value;

use self::{
    calls::Asked,
    deletions::Removal,
    fleet::Standing,
    memory::Memory,
    refusals::Refusal,
    sizes::SizeWrite,
    taken::{Counts, Set},
    watches::{Kind, Watches},
};
use crate::{
    entropy::{Nanos, SECOND},
    tasks::Pause,
};

pub(crate) use self::{
    answers::lasting,
    calls::{Answered, is_dry_run},
    fleet::Ledgers,
    memory::Amounts,
};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Author {
    Copy(usize),
    /// Cluster API's controllers and kubelets.
    Controllers,
    /// People, MachineHealthChecks, webhooks and other programs.
    Foreign,
}

/// A rule of the ledger.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Check {
    /// A copy lowers a size by no more than the Machines whose deletion was its own, and what its calls ask for.
    TwoForOne,
    /// A Machine whose deletion was answered OK has lowered the size, unless there is a cause.
    Replaced,
    /// Every other size write belongs to one command.
    SizeOfCommand,
    /// An increase is done exactly once if it is answered OK.
    IncreaseOnce,
    /// A Machine with a Node goes only if it is named, and a copy deletes or marks no other Machine.
    TakenUnnamed,
    /// A deletion that was answered OK is done.
    DeletedInTime,
    /// A permanent refusal has no effect.
    RefusedLeavesNothing,
    /// Min and max are kept.
    Bounds,
    /// Nothing is left over at rest.
    Rest,
    /// The API isn't sent the same request again and again, and none at rest.
    QuietApi,
    /// Nothing is written for a caller that left before its first write.
    AfterDeadline,
    /// A copy's answers are those of a fresh copy.
    LikeFresh,
    /// Refresh succeeds once all faults have ended.
    RefreshHealed,
    /// Nodes and groups are answered consistently.
    Consistent,
    /// Machines that never joined are replaced one after the other, whichever copy does it, and not if replacing is
    /// off.
    ReplacedTooSoon,
    /// Nothing panics.
    Panic,
    /// A Pod that fits runs within bounded time.
    Progress,
    /// A permanent refusal has the cause that its message gives.
    RefusedForCause,
    /// Watches are resumed soon, from the newest version that they have delivered.
    Watches,
    /// No Machine is taken from a group that rolls out.
    RollsOut,
    /// A smaller size for placeholders leaves a replica for each Machine.
    Placeholders,
    /// The error of a Machine that may not be deleted isn't reported again and again.
    ErrorsInVain,
    /// A copy with `--read-only` writes nothing, and answers that nothing was done.
    ReadOnly,
    /// Refresh fails once a kind hasn't been watched for long.
    Stale,
    /// A copy that is asked to end answers every call that has reached it.
    Drained,
    /// No answer to a caller of a fleet is about another Cluster.
    Crossing,
    /// What is remembered of Nodes keeps to its bounds, isn't lost, and is never larger than a Node.
    Remembered,
    /// A Cluster that was opted out or deleted is denied, and nothing is begun for it.
    OptedOut,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A rule that was broken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// The rule.
    pub check: Check,
    /// The virtual time in milliseconds.
    pub at: u64,
    /// The cause.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} ms: {}", self.check, self.at, self.what)
    }
}

#[derive(Clone, Debug, Default)]
struct Group {
    size: i64,
    /// The generation, and the time since when.
    generation: (i64, Nanos),
    min: i64,
    max: i64,
    /// The bounds that it has had, each with the time since when.
    bounds: Vec<(Nanos, i64, i64)>,
    /// The Machines that may be taken without being named: the time from which each may, by the cause in
    /// docs/design/simulation.md.
    allowed: BTreeMap<&'static str, Vec<Nanos>>,
    /// The newest deletion of one of its Machines by the MachineSet controller: its revision, and the observed state.
    taken: Option<(u64, Observed)>,
    /// The times at which replicas without a Machine were given up recently: a Machine may take such a replica.
    given_up: Vec<Nanos>,
    /// The times at which the MachineDeployment controller wrote replicas of its MachineSet beyond its own size, from a
    /// stale view.
    beyond_size: Vec<Nanos>,
    is_gone: bool,
    /// True once it is being deleted: its Machines go with it.
    is_deleting: bool,
    /// The time at which a rollout last began, or was first seen: Machines are deleted for it.
    rolled: Option<Nanos>,
    /// The template of its Machines.
    template: Value,
    /// True if an annotation states the memory of its Nodes.
    states_memory: bool,
    created: Nanos,
    /// The replicas in its status.
    has: i64,
    /// The providerIDs that a MachinePool lists.
    instances: BTreeSet<String>,
    /// The time at which the size of a MachinePool was last lowered.
    last_lowered: Option<Nanos>,
}

impl Group {
    fn bounds_since(&self, since: Nanos) -> impl Iterator<Item = (i64, i64)> {
        let first = self.bounds.iter().rposition(|(from, ..)| *from <= since).unwrap_or_default();
        self.bounds[first..].iter().map(|(_, min, max)| (*min, *max))
    }

    /// Allows a number of Machines to be taken for a cause.
    fn allow(&mut self, cause: &'static str, count: i64, now: Nanos) {
        let count = usize::try_from(count).unwrap_or_default();
        self.allowed.entry(cause).or_default().extend(std::iter::repeat_n(now, count));
    }

    /// Returns true if a Machine may be taken for a cause, and uses up one allowance.
    fn excuses(&mut self, cause: &str, now: Nanos) -> bool {
        let Some(allowed) = self.allowed.get_mut(cause) else { return false };
        allowed.retain(|since| now.saturating_sub(*since) < EXCUSED);
        allowed.pop().is_some()
    }

    /// Returns true if the infrastructure of a MachinePool may still be on its way to a smaller size.
    fn is_waiting(&self, now: Nanos) -> bool {
        self.last_lowered.is_some_and(|since| now.saturating_sub(since) < POOL_WAITS)
    }
}

/// The time for which a cause is an excuse: Cluster API may be down, and lag, for minutes.
const EXCUSED: Nanos = 900 * SECOND;

/// The longest time that the infrastructure of a MachinePool takes to follow a smaller size: four minutes, and the lag of
/// the controllers.
const POOL_WAITS: Nanos = 900 * SECOND;

#[derive(Clone, Debug, Default)]
struct Machine {
    group: String,
    name: String,
    /// The Node that its status names.
    node: Option<String>,
    provider_id: String,
    is_deleting: bool,
    deleted_by: Option<Author>,
    /// The time since which it is being deleted.
    deleting_since: Option<Nanos>,
    /// The revision of its deletion.
    deleting_at: Option<u64>,
    is_gone: bool,
    /// The time of its last change.
    changed: Nanos,
    /// The value of the delete-machine annotation, and the time since when.
    mark: Option<(String, Nanos)>,
    created: Nanos,
}

impl Machine {
    /// Returns the time since which a mark of the program stands.
    fn marked_since(&self) -> Option<Nanos> {
        self.mark.as_ref().filter(|(mark, _)| mark.starts_with(deletions::MARKED_BY)).map(|(_, since)| *since)
    }
}

#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact about the world that is looked at")]
pub(crate) struct Ledger {
    now: Nanos,
    /// The revision that is being checked.
    revision: u64,
    /// The revisions of other authors among those of the controllers.
    pub(crate) foreign: BTreeSet<u64>,
    /// The state that the MachineSet controller had observed for its writes, by the revisions that are to be checked.
    pub(crate) observed: BTreeMap<u64, Observed>,
    seen: u64,
    groups: BTreeMap<String, Group>,
    /// The group of each MachineSet.
    sets: HashMap<String, String>,
    machines: BTreeMap<String, Machine>,
    /// The Nodes by providerID.
    nodes: HashMap<String, String>,
    /// The time since which Nodes lack the labels of their group, by providerID.
    bare: BTreeMap<String, Nanos>,
    /// The groups with a Node that lacked them for long.
    without_labels: BTreeSet<String>,
    /// The Machines that a DeleteNodes has named, by uid.
    named: BTreeSet<String>,
    /// The Machines of DeleteNodes whose callers have left without an answer, by the copy that they called.
    unheard: BTreeSet<(usize, String)>,
    /// The Machines that copies have deleted or marked, the newest last.
    removals: Vec<Removal>,
    /// The time at which the mark of each Machine was taken off since the size was refused.
    taken_back: BTreeMap<String, Nanos>,
    /// The times at which each copy has replaced a Machine of each group.
    replacements: HashMap<(usize, String), Nanos>,
    /// The Machines that were replaced since somebody else had deleted them, and are counted.
    counted: BTreeSet<String>,
    /// The names under which smaller sizes were written.
    lowered_by: BTreeSet<String>,
    asked: BTreeMap<u64, Asked>,
    /// The deletes that were answered OK, by uid.
    ok_deletes: BTreeMap<String, Nanos>,
    /// The groups that each copy has returned, and the time since when they count.
    last_groups: HashMap<usize, (Nanos, BTreeSet<String>)>,
    /// The time at which a Refresh of each copy last began or ended.
    last_refreshed: BTreeMap<usize, Nanos>,
    /// The time at which each copy last received a Refresh that it answered OK.
    last_fresh: BTreeMap<usize, Nanos>,
    /// The deleted groups, and the time since when.
    gone: BTreeMap<String, Nanos>,
    last_killed: HashMap<usize, Nanos>,
    /// The time at which the request that is being served was sent.
    sent: Nanos,
    /// The name under which it writes a size, if it does.
    writer: Option<String>,
    /// The sizes that were written for calls, in their order.
    writes: BTreeMap<u64, SizeWrite>,
    /// The names under which larger sizes were written.
    increased_by: BTreeSet<String>,
    /// The writes that copies have sent, by path.
    patches: Vec<(usize, String, Nanos)>,
    /// The newest requests of copies, by their target.
    recent: VecDeque<(Nanos, String)>,
    /// The newest size of each MachineSet of a MachineDeployment.
    set_sizes: HashMap<String, i64>,
    /// The sizes of each group, each with the time of its end.
    sizes: HashMap<String, Vec<(Option<Nanos>, i64)>>,
    /// The revision of the last change of each kind in each group.
    changed: HashMap<(Kind, String), u64>,
    watches: Watches,
    /// The MachineSets by id.
    all_sets: BTreeMap<String, Set>,
    /// The groups that roll out, each with the revision from which their MachineSets show it.
    rolling: HashMap<String, u64>,
    /// The sizes that somebody else has written of each group, each with its time.
    foreign_sizes: HashMap<String, Vec<(Nanos, i64)>>,
    /// The requests that were refused.
    refusals: Vec<Refusal>,
    /// The time at which the API last refused a copy the deletion of a single Machine, by its uid.
    denied: BTreeMap<(usize, String), Nanos>,
    counts: Counts,
    /// The time at which each copy last wrote the size of each group.
    own_sizes: HashMap<(usize, String), Nanos>,
    /// The times at which each copy wrote a smaller size of each group.
    own_lower_sizes: HashMap<(usize, String), Vec<Nanos>>,
    /// The time at which a request of a copy last failed, or the copy stood still.
    troubled: HashMap<usize, Nanos>,
    /// The time at which watches and deletions were last looked at.
    looked: Nanos,
    /// The time at which an increase of each group was last refused because somebody keeps putting its size back.
    left_to_others: BTreeMap<String, Nanos>,
    /// The Machines that a DeleteNodes has named by their providerID.
    named_with_node: BTreeSet<String>,
    /// The ids in a DeleteNodes that belonged to no Machine.
    named_instances: BTreeSet<String>,
    /// The MachinePools without Machines that have lost an instance that was never named.
    takes_any: BTreeSet<String>,
    /// The ids of instances whose errors were sent while faults lasted.
    sent_errors: BTreeSet<String>,
    /// The groups of Machines that are older than the end of faults, and whose first error was sent later.
    late_errors: BTreeSet<String>,
    findings: Vec<Finding>,
    /// The times in which tasks of copies didn't run.
    pauses: Vec<Pause>,
    /// True if wall clocks jump in this world: intervals are measured by them.
    pub(crate) clocks_jump: bool,
    /// The read-only copy.
    pub(crate) read_only: Option<usize>,
    /// True if Machines are replaced at the min size.
    pub(crate) replaces: bool,
    /// True if kinds change their served version one after the other: copies then watch the remaining ones.
    pub(crate) kinds_change: bool,
    /// The time from which no fault strikes.
    pub(crate) calm_from: Nanos,
    /// The time of the last change of an object.
    last_changed: Nanos,
    /// The standing of the Cluster, if it is one of a fleet: the ledger is about its objects and callers alone.
    standing: Option<Standing>,
    /// The time at which each copy last went on after it had stood still.
    thawed: BTreeMap<usize, Nanos>,
    /// The revision of the workload cluster's API that was seen, if it has one of its own.
    seen_of_workload: u64,
    memory: Memory,
    /// The number of unpreventable events, by their cause.
    pub(crate) exceptions: BTreeMap<&'static str, u64>,
}

/// The checked kinds, in the order in which their changes are checked.
const KINDS: [&str; 4] = ["machinedeployments", "machinesets", "machinepools", "machines"];

impl Ledger {
    /// Sets the time of the next records.
    pub(crate) fn at(&mut self, now: Nanos) {
        self.now = now;
        self.look();
    }

    /// Checks all changes since the last call, all of them by `author`, of a Cluster whose workload cluster has an API
    /// of its own.
    pub(crate) fn observe_both(&mut self, api: &Api, workload: &Api, author: Author) {
        self.observe(api, author);
        let revision = workload.revision();
        if revision == self.seen_of_workload {
            return;
        }
        let events = workload.changes(&Resource::core("nodes"), &Selection::default(), self.seen_of_workload);
        self.seen_of_workload = revision;
        for event in events.into_iter().flatten() {
            self.last_changed = self.now;
            self.revision = event.revision;
            self.node(event.kind, &event.object);
        }
    }

    /// Checks all changes since the last call, all of them by `author`.
    pub(crate) fn observe(&mut self, api: &Api, author: Author) {
        let revision = api.revision();
        if revision == self.seen {
            return;
        }
        let mut changes = Vec::new();
        for (resource, is_node) in KINDS
            .map(|plural| (Resource::new("cluster.x-k8s.io", "v1beta2", plural), false))
            .into_iter()
            .chain([(Resource::core("nodes"), true)])
            .chain(self.is_of_fleet().then(|| (Resource::new("cluster.x-k8s.io", "v1beta2", "clusters"), false)))
        {
            let Ok(mut events) = api.changes(&resource, &Selection::default(), self.seen) else { continue };
            if let Some(standing) = &self.standing {
                events.retain(|event| standing.has(&event.object));
            }
            changes.extend(events.into_iter().map(|event| (event.revision, event.kind, event.object, is_node)));
        }
        self.memory(api, self.seen, author);
        self.seen = revision;
        if !changes.is_empty() {
            self.last_changed = self.now;
        }
        changes.sort_by_key(|(revision, ..)| *revision);
        self.observed = self.observed.split_off(&changes.first().map_or(revision, |(first, ..)| *first));
        for (revision, kind, object, is_node) in changes {
            self.revision = revision;
            let author = if self.foreign.remove(&revision) { Author::Foreign } else { author };
            if is_node {
                self.node(kind, &object);
            } else {
                self.object(kind, &object, author);
            }
        }
    }

    /// Looks once a second for watches that are left, and for deletions that are over.
    fn look(&mut self) {
        if self.now < self.looked + SECOND {
            return;
        }
        self.looked = self.now;
        self.look_at_removals();
        self.look_at_watches();
        self.look_at_memory();
    }

    pub(crate) fn find(&mut self, check: Check, what: impl Into<String>) {
        self.findings.push(Finding { check, at: self.now / 1_000_000, what: what.into() });
    }

    pub(crate) fn findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    pub(crate) fn size(&self, id: &str) -> Option<i64> {
        self.groups.get(id).filter(|group| !group.is_gone).map(|group| group.size)
    }

    pub(crate) fn max(&self, id: &str) -> Option<i64> {
        self.groups.get(id).map(|group| group.max)
    }

    /// Returns the largest size that a group has had since a time.
    fn highest_size(&self, id: &str, since: Nanos) -> Option<i64> {
        let sizes = self.sizes.get(id).into_iter().flatten();
        sizes.filter(|(until, _)| until.is_none_or(|until| until >= since)).map(|(_, size)| *size).max()
    }

    pub(crate) fn has_findings(&self) -> bool {
        !self.findings.is_empty()
    }
}
