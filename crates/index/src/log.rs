//! The log of group states: one line per change. During the first sync changes of one kind share a line, with the
//! single ones at level debug; warnings have lines of their own while they are few. Must never write while the index is
//! locked.

use std::collections::{BTreeMap, BTreeSet};

use rules::{Exclusion, GroupId, Problem, ProblemKind, log_limit::LogLimit};
use tokio::time::{Duration, Instant};

use super::{
    state::{Index, LiveState},
    view::SERVED,
};

/// The interval of summaries during a long first sync, if anything has changed.
const SUMMARIES_APART: Duration = Duration::from_secs(60);

/// The maximum number of groups that a first sync warns about one by one, since somebody has to fix each of them.
const WARNED_SINGLY: usize = 10;

/// The maximum number of lines about one group in a minute, unless one change has more: whoever may write a group could
/// otherwise cause any number of them.
const LINES_OF_A_GROUP: usize = 32;

/// Returns the number of groups, or of objects excluded for this reason, that a first sync logs in a line each.
fn logged_singly(excluded: Option<Exclusion>) -> usize {
    match excluded {
        None | Some(Exclusion::WaitingForTemplate | Exclusion::Gone) => 1,
        Some(_) => WARNED_SINGLY,
    }
}

/// A change of a group: it was added or removed, or has other problems.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Notice {
    /// The group.
    pub id: GroupId,
    /// The reason why it isn't a group now; `None` if it is one.
    pub excluded: Option<Exclusion>,
    /// Its problems.
    pub problems: Vec<Problem>,
    /// Notes that aren't problems but worth knowing.
    pub notes: Vec<String>,
}

impl Notice {
    /// Logs the change for an operator.
    pub fn log(&self) {
        self.log_state();
        for problem in &self.problems {
            self.log_problem(problem);
        }
        for note in &self.notes {
            self.log_note(note);
        }
    }

    fn lines(&self) -> usize {
        1 + self.problems.len() + self.notes.len()
    }

    fn log_state(&self) {
        let group = &self.id;
        match self.excluded {
            None => tracing::info!(%group, "node group is served"),
            Some(reason @ (Exclusion::OutOfScope | Exclusion::OwnedByMachineDeployment | Exclusion::NotAutoscaled)) => {
                tracing::debug!(%group, %reason, "not a node group");
            }
            Some(reason @ (Exclusion::KarpenterMember | Exclusion::ReplicasManagedElsewhere)) => {
                tracing::info!(%group, %reason, "not a node group");
            }
            Some(Exclusion::WaitingForTemplate) => {
                tracing::debug!(%group, "node group waits for its infrastructure template");
            }
            Some(Exclusion::Gone) => tracing::info!(%group, "object of a node group is gone"),
            Some(reason) => tracing::warn!(%group, %reason, "node group is excluded"),
        }
    }

    fn log_problem(&self, problem: &Problem) {
        tracing::warn!(group = %self.id, kind = problem.kind.as_str(), "{problem}");
    }

    fn log_note(&self, note: &str) {
        tracing::info!(group = %self.id, "{note}");
    }

    /// Logs the number of earlier changes of the group that weren't logged.
    fn log_further(&self, more: u64) {
        if more > 0 {
            tracing::info!(group = %self.id, more, "further changes of this node group weren't logged");
        }
    }

    /// Logs the change at level debug, as one of many in a summary.
    fn log_in_detail(&self) {
        let group = &self.id;
        match self.excluded {
            None => tracing::debug!(%group, "node group is served"),
            Some(reason) => tracing::debug!(%group, %reason, "node group is excluded"),
        }
        for problem in &self.problems {
            tracing::debug!(%group, kind = problem.kind.as_str(), "{problem}");
        }
        for note in &self.notes {
            tracing::debug!(%group, "{note}");
        }
    }
}

/// The lines about single groups in the last minute.
#[derive(Debug)]
pub(super) struct GroupLines {
    limit: LogLimit<GroupId>,
    summed_up: Instant,
}

impl Default for GroupLines {
    fn default() -> Self {
        Self { limit: LogLimit::new(LINES_OF_A_GROUP), summed_up: Instant::now() }
    }
}

/// The groups that have changed in a first sync since the last summary.
#[derive(Debug)]
pub(super) struct FirstSync {
    changed: BTreeSet<GroupId>,
    summed_up: Instant,
}

impl Index {
    /// Returns the index in a first sync, which lasts until [`Index::end_first_sync`]: changes of groups are
    /// summarized in the log.
    pub fn in_first_sync(self) -> Self {
        *self.first_sync.lock() = Some(FirstSync { changed: BTreeSet::new(), summed_up: Instant::now() });
        self
    }

    /// Ends the first sync: logs a summary of the groups. Each later change is a line of its own, up to a number of
    /// lines for each group in a minute.
    pub fn end_first_sync(&self) {
        let ended = self.first_sync.lock().take();
        if let Some(ended) = ended {
            self.sum_up(ended.changed);
            let (served, left_out) = self.served_and_left_out();
            tracing::info!(served, left_out, "node groups are read");
        }
    }

    pub(super) fn log(&self, notices: Vec<Notice>) {
        self.sum_up_groups();
        if notices.is_empty() {
            return;
        }
        let mut first_sync = self.first_sync.lock();
        let Some(under_way) = first_sync.as_mut() else {
            drop(first_sync);
            for notice in &notices {
                self.log_group(notice);
            }
            return;
        };
        notices.iter().for_each(Notice::log_in_detail);
        under_way.changed.extend(notices.into_iter().map(|notice| notice.id));
        if under_way.summed_up.elapsed() < SUMMARIES_APART {
            return;
        }
        under_way.summed_up = Instant::now();
        let changed = std::mem::take(&mut under_way.changed);
        drop(first_sync);
        self.sum_up(changed);
        let (served, left_out) = self.served_and_left_out();
        tracing::info!(served, left_out, "node groups are being read");
    }

    /// Logs a change of a group, at level debug beyond the limit.
    fn log_group(&self, notice: &Notice) {
        let now = Instant::now().into_std();
        let allowed = self.group_lines.lock().limit.allows(notice.id.clone(), notice.lines(), now);
        let Some(more) = allowed else {
            notice.log_in_detail();
            return;
        };
        notice.log_further(more);
        notice.log();
    }

    /// Logs the number of changes beyond the limit, and the present state of each such group.
    fn sum_up_groups(&self) {
        let now = Instant::now();
        let over = {
            let mut lines = self.group_lines.lock();
            if now.saturating_duration_since(lines.summed_up) < SUMMARIES_APART {
                return;
            }
            lines.summed_up = now;
            lines.limit.over(now.into_std())
        };
        let notices: Vec<_> = {
            let live = &self.inner.read().live;
            over.into_iter().map(|(id, more)| (live.notice(id), more)).collect()
        };
        for (notice, more) in notices {
            notice.log_further(more);
            notice.log();
        }
    }

    /// Logs a line for each kind of change; a change of a single group, or a warning about few groups, has its own
    /// line.
    fn sum_up(&self, changed: BTreeSet<GroupId>) {
        let notices: Vec<_> = {
            let live = &self.inner.read().live;
            changed.into_iter().map(|id| live.notice(id)).collect()
        };
        sum_up_states(&notices);
        sum_up_problems(&notices);
        sum_up_notes(&notices);
    }

    /// Returns the number of groups, and of objects that unintentionally aren't groups.
    fn served_and_left_out(&self) -> (u64, u64) {
        let groups = self.stats().groups;
        let of = |state: &str| groups.get(state).copied().unwrap_or_default();
        let is_paused = |reason: &Exclusion| matches!(reason, Exclusion::Paused | Exclusion::HandedOver);
        let reasons = Exclusion::ALL.into_iter().filter(|reason| reason.is_error() || is_paused(reason));
        (of(SERVED), reasons.map(Exclusion::as_str).map(of).sum())
    }
}

fn sum_up_states(notices: &[Notice]) {
    let mut states: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for notice in notices {
        states.entry(notice.excluded).or_default().push(notice);
    }
    for (excluded, alike) in &states {
        let [first, ..] = alike.as_slice() else { continue };
        if alike.len() <= logged_singly(*excluded) {
            for notice in alike {
                notice.log_state();
            }
            continue;
        }
        let (groups, first) = (alike.len(), &first.id);
        match excluded {
            None => tracing::info!(groups, "node groups are served"),
            Some(
                Exclusion::OutOfScope
                | Exclusion::OwnedByMachineDeployment
                | Exclusion::NotAutoscaled
                | Exclusion::WaitingForTemplate,
            ) => {}
            Some(reason @ (Exclusion::KarpenterMember | Exclusion::ReplicasManagedElsewhere)) => {
                tracing::info!(groups, %first, %reason, "not node groups");
            }
            Some(Exclusion::Gone) => tracing::info!(groups, %first, "objects of node groups are gone"),
            Some(reason) => tracing::warn!(groups, %first, %reason, "node groups are excluded"),
        }
    }
}

fn sum_up_problems(notices: &[Notice]) {
    let mut kinds: BTreeMap<ProblemKind, Vec<_>> = BTreeMap::new();
    for notice in notices {
        for problem in &notice.problems {
            kinds.entry(problem.kind).or_default().push((notice, problem));
        }
    }
    for (kind, found) in kinds {
        let groups: BTreeSet<_> = found.iter().map(|(notice, _)| &notice.id).collect();
        let Some((first, problem)) = found.first() else { continue };
        if groups.len() <= WARNED_SINGLY {
            for (notice, problem) in found {
                notice.log_problem(problem);
            }
            continue;
        }
        let (groups, first, kind) = (groups.len(), &first.id, kind.as_str());
        tracing::warn!(groups, %first, kind, "node groups have problems of one kind, the first one: {problem}");
    }
}

fn sum_up_notes(notices: &[Notice]) {
    let noted: Vec<_> = notices.iter().filter(|notice| !notice.notes.is_empty()).collect();
    match noted.as_slice() {
        [] => {}
        [notice] => {
            for note in &notice.notes {
                notice.log_note(note);
            }
        }
        [first, ..] => {
            let note = first.notes.first().map(String::as_str).unwrap_or_default();
            tracing::info!(groups = noted.len(), first = %first.id, "node groups have notes, the first one: {note}");
        }
    }
}

impl LiveState {
    pub(super) fn take_notices(&mut self) -> Vec<Notice> {
        if self.to_log.is_empty() {
            return Vec::new();
        }
        let changed = std::mem::take(&mut self.to_log);
        changed.into_iter().map(|id| self.notice(id)).collect()
    }

    fn notice(&self, id: GroupId) -> Notice {
        let group = self.groups.get(&id);
        let served = group.filter(|group| group.is_live()).and_then(|group| group.served.as_deref());
        let notes = served.map(|served| served.definition.notes.clone()).unwrap_or_default();
        let excluded = group.map_or(Some(Exclusion::Gone), |group| group.excluded.as_ref().map(|it| it.reason));
        let problems = group.map(|group| group.problems().to_vec()).unwrap_or_default();
        Notice { id, excluded, problems, notes }
    }
}
