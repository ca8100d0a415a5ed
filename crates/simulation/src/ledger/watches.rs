//! Checks on the watches of each copy and their progress: a copy that has received every event of a group knows its
//! current state.

use std::collections::HashMap;

use super::{Check, Ledger};
use crate::{
    entropy::{Nanos, SECOND},
    tasks::Pause,
};

/// The time within which a copy has processed what it has received.
pub(super) const TAKEN_UP: Nanos = 2 * SECOND;
/// The longest time from the end of a watch to the next one while all requests of its copy succeed.
const RESUMED: Nanos = 60 * SECOND;
/// The longest time from the end of a fleet's watch of Nodes to the next one while all requests succeed. A request
/// without an answer is given up after 150 s (`watch_idle` of the informers); the pause before the next one is 60 s at
/// most (`LONGEST_PAUSE` of a fleet's Clusters, `MAX_RETRY_AFTER` of the informers); and a list comes before the watch.
/// While a workload cluster is silent, its copies' requests fail more often than that.
const NODES_RESUMED: Nanos = (150 + 60 + 60) * SECOND;
/// The time in which a copy learns that a Cluster is served again: its watch of Clusters may be late, and then silent
/// for [`SILENT`].
const JOINED: Nanos = 600 * SECOND;
/// The time for which a kind may be unwatched before Refresh must fail: --max-staleness, the time-outs of requests, and
/// the longest standstill of a copy.
const STALE: Nanos = 240 * SECOND;
/// The time without events after which a watch is given up: two and a half bookmarks, and the delay of its copy.
const SILENT: Nanos = 200 * SECOND;
/// The longest time that a copy waits after a failed request, time-outs included.
const WAITS: Nanos = 130 * SECOND;
/// The time for which the revisions of a watch are kept.
const KEPT: Nanos = 20 * SECOND;

/// The limit of the time for which ended calls, and the causes of their delay, are remembered.
const REMEMBERED: Nanos = 700 * SECOND;

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Kind {
    Deployments,
    Sets,
    Machines,
    Nodes,
    Clusters,
}

impl Kind {
    /// The kinds that determine the state of a group.
    const OF_GROUP: [Self; 4] = [Self::Deployments, Self::Sets, Self::Machines, Self::Nodes];
    /// The kinds without which a copy isn't in sync.
    const CORE: [Self; 5] = [Self::Clusters, Self::Deployments, Self::Sets, Self::Machines, Self::Nodes];

    fn of_path(path: &str) -> Option<Self> {
        match path.rsplit('/').next()? {
            "machinedeployments" => Some(Self::Deployments),
            "machinesets" => Some(Self::Sets),
            "machines" => Some(Self::Machines),
            "nodes" => Some(Self::Nodes),
            "clusters" => Some(Self::Clusters),
            _ => None,
        }
    }
}

#[derive(Debug)]
struct Watch {
    copy: usize,
    path: String,
    kind: Option<Kind>,
    /// The revisions that it has reached, each with the time.
    reached: Vec<(Nanos, u64)>,
    /// True while it delivers the initial list.
    lists: bool,
    /// True once an old event is repeated: the watch may be resumed from there.
    is_outdated: bool,
    /// The time since which nothing of it arrives, not even its end.
    silent_since: Option<Nanos>,
}

/// The watches of all copies, by number, and their progress.
#[derive(Debug, Default)]
pub(super) struct Watches {
    open: HashMap<u64, Watch>,
    /// The newest revision that each copy has received, by path.
    reported: HashMap<(usize, String), u64>,
    /// The time at which each copy last lost its last watch of a kind.
    lost: HashMap<(usize, Kind), Nanos>,
}

fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

fn revision(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("\"resourceVersion\":\"")?;
    rest.split('"').next()?.parse().ok()
}

impl Ledger {
    pub(crate) fn watches(&mut self, copy: usize, number: u64, path: &str, query: &str) {
        let from = parameter(query, "resourceVersion").and_then(|text| text.parse().ok());
        let lists = parameter(query, "sendInitialEvents") == Some("true");
        if from.is_none() && !lists {
            self.find(Check::Watches, format!("copy {copy} watches {path} from no version, and asks for no list"));
        }
        let kind = Kind::of_path(path);
        let known = self.watches.reported.get(&(copy, path.to_owned())).filter(|_| !lists);
        if let (Some(from), Some(reported)) = (from, known)
            && from < *reported
        {
            let what = format!("copy {copy} resumes {path} from {from}, and was shown {reported}");
            self.find(Check::Watches, what);
        }
        let reached = from.filter(|_| !lists).map(|from| (self.now, from)).into_iter().collect();
        let watch = Watch { copy, path: path.to_owned(), kind, reached, lists, is_outdated: false, silent_since: None };
        self.watches.open.insert(number, watch);
    }

    pub(crate) fn shown(&mut self, number: u64, piece: &[u8]) {
        let now = self.now;
        let Some(watch) = self.watches.open.get_mut(&number) else { return };
        for line in std::str::from_utf8(piece).unwrap_or_default().lines() {
            if watch.lists {
                // The initial events come first, in no order of their versions.
                watch.lists = !line.contains("k8s.io/initial-events-end");
                if watch.lists {
                    continue;
                }
            }
            let Some(revision) = revision(line) else { continue };
            let newest = watch.reached.last().map_or(0, |(_, newest)| *newest);
            watch.reached.push((now, revision.max(newest)));
            if !watch.is_outdated {
                self.watches.reported.insert((watch.copy, watch.path.clone()), revision.max(newest));
            }
        }
        let old = watch.reached.iter().take_while(|(at, _)| at + KEPT < now).count();
        watch.reached.drain(..old.saturating_sub(1));
    }

    /// Records that a chunk of a watch is repeated after a later one.
    pub(crate) fn outdates(&mut self, number: u64) {
        if let Some(watch) = self.watches.open.get_mut(&number) {
            watch.is_outdated = true;
            self.watches.reported.remove(&(watch.copy, watch.path.clone()));
        }
    }

    /// Records that nothing of a watch arrives from a time on.
    pub(crate) fn silences(&mut self, number: u64, since: Nanos) {
        if let Some(watch) = self.watches.open.get_mut(&number) {
            watch.silent_since = Some(since);
        }
    }

    pub(crate) fn unwatched(&mut self, number: u64) {
        if let Some(Watch { copy, kind: Some(kind), .. }) = self.watches.open.remove(&number)
            && !self.is_watched(copy, kind)
        {
            self.watches.lost.insert((copy, kind), self.now);
        }
    }

    /// Records a list that a copy has received: it knows the current state of the kind, and has to watch it from there.
    pub(super) fn lists(&mut self, copy: usize, path: &str) {
        if let Some(kind) = Kind::of_path(path)
            && !self.is_watched(copy, kind)
        {
            self.watches.lost.insert((copy, kind), self.now);
        }
    }

    /// Records that a copy stands still, or that one of its requests fails.
    pub(crate) fn troubles(&mut self, copy: usize) {
        self.troubled.insert(copy, self.now);
    }

    /// Returns true if nothing delays a copy.
    pub(super) fn is_well(&self, copy: usize) -> bool {
        !self.is_out_lately(self.now) && self.is_undisturbed_for(copy, WAITS)
    }

    /// Returns true if for a time no request of a copy has failed, and all its tasks have run.
    fn is_undisturbed_for(&self, copy: usize, time: Nanos) -> bool {
        if self.has_paused(copy, self.now.saturating_sub(time), self.now) {
            return false;
        }
        let troubled = self.troubled.get(&copy).copied();
        let killed = self.last_killed.get(&copy).copied();
        troubled.is_none_or(|troubled| troubled + time < self.now || killed.is_some_and(|killed| killed > troubled))
    }

    fn is_watched(&self, copy: usize, kind: Kind) -> bool {
        self.watches.open.values().any(|watch| watch.copy == copy && watch.kind == Some(kind))
    }

    /// Checks that a copy whose requests succeed soon watches every kind that it needs again, and gives up silent
    /// watches.
    pub(super) fn look_at_watches(&mut self) {
        let is_long = |watch: &&Watch| watch.silent_since.is_some_and(|since| self.now.saturating_sub(since) > SILENT);
        let silent = self.watches.open.values().filter(is_long).filter(|watch| self.is_well(watch.copy));
        let reported =
            |watch: &Watch| format!("copy {} goes on with a watch of {} that is silent", watch.copy, watch.path);
        let mut found: Vec<_> = silent.map(reported).collect();
        if self.kinds_change {
            return self.find_all(Check::Watches, found);
        }
        for ((copy, kind), lost) in &self.watches.lost {
            if !self.is_watched(*copy, *kind) && self.must_watch(*copy, *kind, *lost) {
                found.push(format!("copy {copy} has watched no {kind:?} since {} s", lost / SECOND));
            }
        }
        self.find_all(Check::Watches, found);
    }

    /// Returns true if a copy must watch a kind again by now, whose last watch ended at this time.
    fn must_watch(&self, copy: usize, kind: Kind, lost: Nanos) -> bool {
        let since = self.now.saturating_sub(lost);
        if self.is_of_fleet() && kind == Kind::Nodes {
            return since > NODES_RESUMED
                && self.has_been_served_for(JOINED, self.now)
                && self.is_undisturbed_for(copy, NODES_RESUMED);
        }
        since > RESUMED && self.is_well(copy)
    }

    fn find_all(&mut self, check: Check, mut found: Vec<String>) {
        found.sort();
        for what in found {
            self.find(check, what);
        }
    }

    /// Checks a Refresh that a copy has answered with OK: no kind may have been unwatched for long.
    pub(super) fn refreshed(&mut self, copy: usize) {
        let killed = self.last_killed.get(&copy).copied().unwrap_or_default();
        let is_stale = |kind: &Kind| {
            let lost = self.watches.lost.get(&(copy, *kind)).copied().unwrap_or_default().max(killed);
            // The task that reads a watch may have paused before it came to the end.
            let unwatched = self.now.saturating_sub(lost).saturating_sub(self.time_paused(copy, lost, self.now));
            !self.is_watched(copy, *kind) && unwatched > STALE
        };
        // The Nodes of a fleet hold up no Refresh but that of a Cluster with Machines that only they identify.
        let is_needed = |kind: &Kind| !(self.is_of_fleet() && *kind == Kind::Nodes);
        let stale: Vec<_> = Kind::CORE.into_iter().filter(is_needed).filter(is_stale).collect();
        if !stale.is_empty() {
            let what = format!("copy {copy} answers Refresh with OK, and has watched no {stale:?} for long");
            self.find(Check::Stale, what);
        }
    }

    /// Forgets everything that a dead copy knew.
    pub(super) fn forget_watches(&mut self, copy: usize) {
        self.watches.open.retain(|_, watch| watch.copy != copy);
        self.watches.reported.retain(|(of, _), _| *of != copy);
        self.watches.lost.retain(|(of, _), _| *of != copy);
    }

    /// Returns the revision of a kind that a copy had received at a time.
    fn reached(&self, copy: usize, kind: Kind, at: Nanos) -> Option<u64> {
        let watches = self.watches.open.values().filter(|watch| watch.copy == copy && watch.kind == Some(kind));
        let reached = watches.map(|watch| {
            let is_taken_in = |shown: Nanos| shown <= at && !self.has_paused(copy, shown, at);
            let before = watch.reached.iter().rev().find(|(shown, _)| is_taken_in(*shown));
            before.map(|(_, revision)| *revision)
        });
        let reached: Option<Vec<u64>> = reached.collect();
        reached?.into_iter().min()
    }

    /// Records the times in which tasks of copies don't run.
    pub(crate) fn paused(&mut self, pauses: &mut Vec<Pause>) {
        if pauses.is_empty() {
            return;
        }
        let now = self.now;
        self.pauses.retain(|pause| pause.ended + REMEMBERED > now);
        self.pauses.append(pauses);
    }

    /// Records that a copy has stood still since a time: tasks that were to run meanwhile run from now on.
    pub(crate) fn stood(&mut self, copy: usize, since: Nanos) {
        let now = self.now;
        self.thawed.insert(copy, now);
        let is_meant = |pause: &&mut Pause| pause.copy == copy && (since..=now).contains(&pause.ended);
        for pause in self.pauses.iter_mut().filter(is_meant) {
            pause.ended = now;
        }
        // The copy reads only now what has arrived meanwhile, before a silence too.
        for watch in self.watches.open.values_mut().filter(|watch| watch.copy == copy) {
            for (at, _) in watch.reached.iter_mut().filter(|(at, _)| *at >= since) {
                *at = now;
            }
            watch.silent_since = watch.silent_since.map(|silent| silent.max(now));
        }
    }

    /// Returns true if a task of a copy didn't run at some time between these: what arrived may not have been
    /// processed.
    pub(super) fn has_paused(&self, copy: usize, from: Nanos, to: Nanos) -> bool {
        self.pauses.iter().any(|pause| pause.copy == copy && pause.began <= to && pause.ended >= from)
    }

    /// Returns the time for which at least one task of a copy didn't run between these.
    fn time_paused(&self, copy: usize, from: Nanos, to: Nanos) -> Nanos {
        let within = |pause: &Pause| (pause.began.max(from), pause.ended.min(to));
        let mut pauses: Vec<_> = self.pauses.iter().filter(|pause| pause.copy == copy).map(within).collect();
        pauses.sort_unstable();
        let mut counted = from;
        let each = pauses.into_iter().map(|(began, ended)| {
            let time = ended.saturating_sub(began.max(counted));
            counted = counted.max(ended);
            time
        });
        each.sum()
    }

    /// Returns true if a copy had received this revision of a kind at a time.
    pub(super) fn has_seen(&self, copy: usize, kind: Kind, revision: u64, at: Nanos) -> bool {
        self.reached(copy, kind, at).is_some_and(|reached| reached >= revision)
    }

    /// Returns true if a copy had received the current state of a group at a time.
    pub(super) fn knows(&self, copy: usize, group: &str, at: Nanos) -> bool {
        // The watches of MachinePools aren't recorded.
        let is_followed = !group.starts_with("MachinePool/") && !self.is_out_lately(at);
        is_followed
            && Kind::OF_GROUP.into_iter().all(|kind| {
                let of_group = self.changed.get(&(kind, group.to_owned())).copied().unwrap_or_default();
                let of_all = self.changed.get(&(kind, String::new())).copied().unwrap_or_default();
                self.has_seen(copy, kind, of_group.max(of_all), at)
            })
    }

    /// Records a change of an object of a group, or of all groups if its group is unknown.
    pub(super) fn change(&mut self, kind: Kind, group: &str) {
        self.changed.insert((kind, group.to_owned()), self.revision);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_in_which_tasks_pause_makes_no_kind_stale() {
        const REFRESHED: Nanos = 400 * SECOND;
        let lost = REFRESHED - STALE - 50 * SECOND;
        // Those of two tasks at the same time count once, and what was before the end not at all.
        for (pauses, is_stale) in [
            (vec![], true),
            (vec![(20, 51)], true),
            (vec![(20, 40), (20, 40), (30, 50)], true),
            (vec![(20, 40), (50, 81)], false),
            (vec![(-60, 30), (10, 49)], true),
            (vec![(-60, 30), (10, 51)], false),
        ] {
            let mut ledger = Ledger::default();
            let at = |seconds: i64| lost.saturating_add_signed(seconds * SECOND.cast_signed());
            let pause = |(began, ended)| Pause { copy: 0, began: at(began), ended: at(ended) };
            ledger.pauses = pauses.iter().copied().map(pause).collect();
            for kind in Kind::CORE {
                ledger.watches.lost.insert((0, kind), lost);
            }
            ledger.now = REFRESHED;
            ledger.refreshed(0);
            let found: Vec<_> = ledger.findings().into_iter().map(|finding| finding.check).collect();
            assert_eq!(found == [Check::Stale], is_stale, "{pauses:?}: {found:?}");
        }
    }
}
