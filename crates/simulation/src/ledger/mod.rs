//! The rules for every revision of the API and of every answer of the program, whatever happens. It reads objects
//! and messages alone, never the program's own state, and shares no rule with it.

mod calls;
mod groups;
mod increases;
mod instances;
mod log;
mod marks;
mod nodes;
mod objects;
mod places;
mod refusals;
mod rest;
mod rollouts;
mod sent;
mod taken;
mod watches;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    fmt,
};

use sandbox::{
    api::{Api, Resource, Selection},
    stepped::Observed,
};
use serde_json::Value;

use self::{
    calls::Asked,
    log::{Log, MARKED_BY},
    places::Counts,
    refusals::{Refusal, SoftEntry},
    rollouts::Set,
    watches::{Kind, Watches},
};
use crate::{
    entropy::{Nanos, SECOND},
    tasks::Pause,
};

pub(crate) use self::{calls::Answered, instances::lasting};

/// The author of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Author {
    /// A copy of the program.
    Copy(usize),
    /// Cluster API's controllers and kubelets.
    Controllers,
    /// People, MachineHealthChecks, webhooks: somebody else.
    Foreign,
}

/// A rule of the ledger. The numbers are those of the list in the crate's docs.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Check {
    /// 1: a write that lowers k entries lowers the size by k.
    LowersByEntries,
    /// 2: a Machine lowers the size once at most.
    LoweredOnce,
    /// 3: every other size write belongs to one command.
    SizeOfCommand,
    /// 4: an increase is done exactly once if it is answered OK.
    IncreaseOnce,
    /// 5: a Machine with a Node goes only if it is named.
    TakenUnnamed,
    /// 6: a deletion that was answered OK is done.
    DeletedInTime,
    /// 7: what is refused for good leaves nothing.
    RefusedLeavesNothing,
    /// 8: min and max are kept.
    Bounds,
    /// 9: entries go from none to wanted to lowered to none.
    Phases,
    /// 10: nothing that isn't in the log is marked or deleted.
    MarksOwn,
    /// 11: at rest nothing is left over.
    Rest,
    /// 12: the API isn't asked the same again and again, and is left alone at rest.
    QuietApi,
    /// 13: nothing is written for who left before its first write.
    AfterDeadline,
    /// 14: what a copy answers is what a fresh copy answers.
    LikeFresh,
    /// 15: handlers are told of added, updated and deleted in that order, and of all there is.
    Handlers,
    /// 16: Refresh succeeds once all is healed.
    RefreshHealed,
    /// 17: Nodes and groups are answered consistently.
    Consistent,
    /// 18: Machines that never joined are replaced one after the other, whichever copy does it, and not if it is forbidden.
    ReplacedTooSoon,
    /// 19: nothing panics.
    Panic,
    /// 20: a Pod that fits runs within bounded time.
    Progress,
    /// 21: a Machine of a MachinePool is deleted by name only once its infrastructure had the time to.
    PoolPatience,
    /// 22: what is refused for good has the cause that is told.
    RefusedForCause,
    /// 23: watches are resumed soon, from the newest version that they have told.
    Watches,
    /// 24: nothing is taken from a group that rolls out.
    RollsOut,
    /// 25: a smaller size for placeholders is one that the Machines leave.
    Placeholders,
    /// 26: the entry of a Machine that is gone leaves the log, whatever another one meets.
    Forgets,
    /// 27: the error of a Machine that may not be deleted isn't sent again and again.
    ErrorsInVain,
    /// 28: a copy with `--read-only` writes nothing, and says that nothing was done.
    ReadOnly,
    /// 29: Refresh fails while a kind is not watched for long.
    Stale,
    /// 30: a copy that is asked to end answers what has reached it.
    Drained,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A rule that was broken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// Which.
    pub check: Check,
    /// When, in virtual milliseconds.
    pub at: u64,
    /// By what.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} ms: {}", self.check, self.at, self.what)
    }
}

/// A node group.
#[derive(Clone, Debug, Default)]
struct Group {
    size: i64,
    /// Its generation, and since when.
    generation: (i64, Nanos),
    min: i64,
    max: i64,
    log: Log,
    /// The bounds that it has had, with since when.
    bounds: Vec<(Nanos, i64, i64)>,
    /// The Machines that may be taken without being named, by the cause that docs/design/delete-rule.md gives, each with
    /// since when.
    allowed: BTreeMap<&'static str, Vec<Nanos>>,
    /// The newest deletion of a Machine of it by the MachineSet controller: its revision, and the observed state.
    taken: Option<(u64, Observed)>,
    /// Replicas without a Machine that were given up lately, each with when: a Machine may come into the place.
    given_up: Vec<Nanos>,
    /// Replicas of its MachineSet beyond its own size, which the MachineDeployment controller wrote by an old view, each with when.
    beyond_size: Vec<Nanos>,
    is_gone: bool,
    /// Set once it is being deleted: its Machines go with it.
    is_deleting: bool,
    /// When it last began to roll out, or was seen to: Machines go for that.
    rolled: Option<Nanos>,
    /// The template of its Machines.
    template: Value,
    /// The annotation of the last replacement, and since when it stands.
    replaced: Option<(String, Nanos)>,
    created: Nanos,
    /// Of its status: how many it has.
    has: i64,
    /// The providerIDs that it lists: of a MachinePool.
    instances: BTreeSet<String>,
    /// When an entry was last lowered, be it there or not: of a MachinePool.
    last_lowered: Option<Nanos>,
    /// When it first had no more than its size since an entry was lowered, by uid: of a MachinePool.
    came_down: BTreeMap<String, Nanos>,
}

impl Group {
    /// The bounds that it had from a time on.
    fn bounds_since(&self, since: Nanos) -> impl Iterator<Item = (i64, i64)> {
        let first = self.bounds.iter().rposition(|(from, ..)| *from <= since).unwrap_or_default();
        self.bounds[first..].iter().map(|(_, min, max)| (*min, *max))
    }

    /// So many Machines may go for a cause.
    fn allow(&mut self, cause: &'static str, count: i64, now: Nanos) {
        let count = usize::try_from(count).unwrap_or_default();
        self.allowed.entry(cause).or_default().extend(std::iter::repeat_n(now, count));
    }

    /// Returns true if a Machine may go for a cause, which counts for one.
    fn excuses(&mut self, cause: &str, now: Nanos) -> bool {
        let Some(allowed) = self.allowed.get_mut(cause) else { return false };
        allowed.retain(|since| now.saturating_sub(*since) < EXCUSED);
        allowed.pop().is_some()
    }

    /// Returns true if entries may still be waiting for the infrastructure of their MachinePool: each new one makes all wait.
    fn is_waiting(&self, now: Nanos) -> bool {
        self.last_lowered.is_some_and(|since| now.saturating_sub(since) < POOL_WAITS)
    }
}

/// A cause excuses for no longer: Cluster API may be down, and lag behind, for minutes.
const EXCUSED: Nanos = 900 * SECOND;

/// The longest that an entry of a MachinePool stays at rest after the last one was lowered: its infrastructure follows
/// within four minutes, has five more, and then the Machine goes.
const POOL_WAITS: Nanos = 900 * SECOND;

/// A Machine.
#[derive(Clone, Debug, Default)]
struct Machine {
    group: String,
    name: String,
    /// The Node that its status names.
    node: Option<String>,
    provider_id: String,
    /// It refers to no Node, or its Node isn't healthy, as that of a Machine that has just joined.
    is_unhealthy: bool,
    is_deleting: bool,
    /// The one who has deleted it.
    deleted_by: Option<Author>,
    is_gone: bool,
    /// When it last changed.
    changed: Nanos,
    /// The value of the delete-machine annotation, and since when.
    mark: Option<(String, Nanos)>,
    /// The revision since which it has that annotation, or hasn't.
    marked_at: u64,
    /// The revision since which it is healthy and refers to its Node, or isn't or doesn't.
    healthy_at: u64,
    created: Nanos,
}

impl Machine {
    /// Since when a mark of the program stands.
    fn marked_since(&self) -> Option<Nanos> {
        self.mark.as_ref().filter(|(mark, _)| mark.starts_with(MARKED_BY)).map(|(_, since)| *since)
    }
}

/// All that is known.
#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact about the world that is looked at")]
pub(crate) struct Ledger {
    now: Nanos,
    /// The revision that is looked at.
    revision: u64,
    /// Revisions of somebody else among those of the controllers.
    pub(crate) foreign: BTreeSet<u64>,
    /// The state that the MachineSet controller had observed for its writes, by the revisions that are to be looked at.
    pub(crate) observed: BTreeMap<u64, Observed>,
    seen: u64,
    groups: BTreeMap<String, Group>,
    /// The group of each MachineSet.
    sets: HashMap<String, String>,
    machines: BTreeMap<String, Machine>,
    /// Nodes by providerID.
    nodes: HashMap<String, String>,
    /// Since when Nodes lack the labels of their group, by providerID.
    bare: BTreeMap<String, Nanos>,
    /// The groups of which one lacked them for long.
    without_labels: BTreeSet<String>,
    /// The Machines that a DeleteNodes has named, by uid.
    named: BTreeSet<String>,
    /// The Machines that were logged without a name, for placeholders.
    for_places: BTreeSet<String>,
    /// Hard entries that have lowered the size, by the uids of group and Machine: a group that was made anew, and has
    /// adopted the Machines of the one before, has a size of its own.
    lowered: BTreeSet<(String, String)>,
    /// Every ticket of an entry that has left, with its uid.
    left: BTreeSet<(String, String)>,
    asked: BTreeMap<u64, Asked>,
    /// Deletes that were answered OK, by uid.
    ok_deletes: BTreeMap<String, Nanos>,
    /// The groups that each copy has named, and since when they count.
    last_groups: HashMap<usize, (Nanos, BTreeSet<String>)>,
    /// When somebody last began or ended a Refresh of each copy.
    last_refreshed: BTreeMap<usize, Nanos>,
    /// When each copy was last asked for a Refresh that it answered OK.
    last_fresh: BTreeMap<usize, Nanos>,
    /// The groups that are gone, and since when.
    gone: BTreeMap<String, Nanos>,
    last_killed: HashMap<usize, Nanos>,
    /// When the request that is being served was sent.
    sent: Nanos,
    /// The name under which it writes a size, if it does.
    writer: Option<String>,
    /// The increase that is written under each name.
    writers: HashMap<String, u64>,
    /// The writes that copies have sent, by path.
    patches: Vec<(usize, String, Nanos)>,
    /// The newest requests of copies, by what they ask for.
    recent: VecDeque<(Nanos, String)>,
    /// The newest size of each MachineSet of a MachineDeployment.
    set_sizes: HashMap<String, i64>,
    /// The sizes of each group, with when each ended.
    sizes: HashMap<String, Vec<(Option<Nanos>, i64)>>,
    /// The revision of the last change of each kind in each group.
    changed: HashMap<(Kind, String), u64>,
    watches: Watches,
    /// The MachineSets, by id.
    all_sets: BTreeMap<String, Set>,
    /// The groups that roll out, with the revision since which their MachineSets say so.
    rolling: HashMap<String, u64>,
    /// Requests that were refused.
    refusals: Vec<Refusal>,
    /// When the API last refused a copy to delete a single Machine, by its uid.
    denied: BTreeMap<(usize, String), Nanos>,
    counts: Counts,
    /// When each copy last wrote the size of each group.
    own_sizes: HashMap<(usize, String), Nanos>,
    /// Entries, by uid and ticket, of Machines that were going when they were logged as ones that stay.
    going_when_logged: BTreeSet<(String, String)>,
    /// Since when a Machine that came may be in the place of one that was going when it was logged, by uid and ticket.
    going_since: BTreeMap<(String, String), Nanos>,
    /// When soft entries lowered the size, by uid and ticket.
    soft_lowered: BTreeMap<(String, String), Nanos>,
    /// The tickets that logs have had, by the uid of the group, each with the revision that first had it.
    tickets: BTreeMap<(String, String), u64>,
    /// When a request of a copy last went wrong, or it stood still.
    troubled: HashMap<usize, Nanos>,
    /// When marks were last looked at.
    looked: Nanos,
    /// The Machines that a DeleteNodes has named by their providerID.
    named_with_node: BTreeSet<String>,
    /// The ids of a DeleteNodes that were those of no Machine.
    named_instances: BTreeSet<String>,
    /// The MachinePools without Machines of which an instance has gone that nobody had named.
    takes_any: BTreeSet<String>,
    findings: Vec<Finding>,
    /// The times in which tasks of copies didn't run.
    pauses: Vec<Pause>,
    /// Set if wall clocks jump in this world: intervals are theirs.
    pub(crate) clocks_jump: bool,
    /// A MachineSet takes an unhealthy Machine as soon as a marked one: Cluster API up to 1.8.
    pub(crate) ties_with_unhealthy: bool,
    /// The copy that may not write.
    pub(crate) read_only: Option<usize>,
    /// Set if Machines are replaced at the minimum.
    pub(crate) replaces: bool,
    /// Set if kinds change the version in which they are served, one after the other: copies watch those that are left then.
    pub(crate) kinds_change: bool,
    /// Nothing disturbs anybody from then on.
    pub(crate) calm_from: Nanos,
    /// When an object last changed.
    last_changed: Nanos,
    /// Since when each copy knows that the Machine of an entry is gone.
    known_gone: BTreeMap<(usize, String), Nanos>,
    /// The soft entries that copies have logged.
    soft: Vec<SoftEntry>,
    /// The number of events of each kind that can't be prevented, by their cause.
    pub(crate) exceptions: BTreeMap<&'static str, u64>,
}

/// The kinds that are looked at, in the order in which their changes are.
const KINDS: [&str; 4] = ["machinedeployments", "machinesets", "machinepools", "machines"];

impl Ledger {
    /// Sets the time of what comes.
    pub(crate) fn at(&mut self, now: Nanos) {
        self.now = now;
        self.look_at_marks();
    }

    /// Looks at what has changed since it was last asked, all of it by `author`.
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
        {
            let Ok(events) = api.changes(&resource, &Selection::default(), self.seen) else { continue };
            changes.extend(events.into_iter().map(|event| (event.revision, event.kind, event.object, is_node)));
        }
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

    pub(crate) fn find(&mut self, check: Check, what: impl Into<String>) {
        self.findings.push(Finding { check, at: self.now / 1_000_000, what: what.into() });
    }

    pub(crate) fn findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    /// The size of a group.
    pub(crate) fn size(&self, id: &str) -> Option<i64> {
        self.groups.get(id).filter(|group| !group.is_gone).map(|group| group.size)
    }

    /// The maximum of a group.
    pub(crate) fn max(&self, id: &str) -> Option<i64> {
        self.groups.get(id).map(|group| group.max)
    }

    /// The largest size that a group has had since a time.
    fn largest_size(&self, id: &str, since: Nanos) -> Option<i64> {
        let sizes = self.sizes.get(id).into_iter().flatten();
        sizes.filter(|(until, _)| until.is_none_or(|until| until >= since)).map(|(_, size)| *size).max()
    }

    pub(crate) fn has_findings(&self) -> bool {
        !self.findings.is_empty()
    }
}
