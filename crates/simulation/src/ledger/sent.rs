//! Checks on the requests that copies send: a copy waits before it repeats one, and a write needs a waiting caller.

use http::{Method, request::Parts};

use super::{
    Check, Ledger,
    calls::{AT_ONCE, Asked, RUNS_ON},
};
use crate::{
    entropy::{Nanos, SECOND},
    tasks::Pause,
};

/// The max number of times that a copy may send the same request within a second.
const MOST_IN_A_SECOND: usize = 20;

/// Returns the name under which a size is written: one per command.
fn writer(parts: &Parts) -> Option<&str> {
    let mut pairs = parts.uri.query()?.split('&');
    pairs.find_map(|pair| pair.strip_prefix("fieldManager="))
}

/// Returns true for a write that is only tried.
pub(crate) fn is_dry_run(parts: &Parts) -> bool {
    parts.uri.query().is_some_and(|query| query.contains("dryRun=All"))
}

impl Ledger {
    /// Records a request that a copy sends; it may arrive late or never.
    pub(crate) fn sends(&mut self, copy: usize, parts: &Parts, at: Nanos) {
        self.is_patient(copy, parts, at);
        if parts.method == Method::GET {
            return;
        }
        if self.read_only == Some(copy) {
            let what = format!("copy {copy} may not write, and sends {} {}", parts.method, parts.uri);
            self.find(Check::ReadOnly, what);
        }
        if is_dry_run(parts) {
            return;
        }
        let path = parts.uri.path();
        let writer = writer(parts);
        if let Some(writer) = writer {
            self.sends_size(writer, at);
        }
        self.patches.push((copy, path.to_owned(), at));
        let now = self.now;
        self.patches.retain(|(_, _, at)| now.saturating_sub(*at) < RUNS_ON);
    }

    /// Checks that a copy that gets errors waits before it repeats a request.
    fn is_patient(&mut self, copy: usize, parts: &Parts, at: Nanos) {
        let request = format!("copy {copy} sends {} {}", parts.method, parts.uri.path());
        while self.recent.front().is_some_and(|(sent, _)| sent + SECOND < at) {
            self.recent.pop_front();
        }
        self.recent.push_back((at, request));
        let Some((_, request)) = self.recent.back() else { return };
        let same = self.recent.iter().filter(|(_, other)| other == request).count();
        if same > MOST_IN_A_SECOND {
            let what = format!("{request} {same} times within a second");
            self.find(Check::QuietApi, what);
        }
    }

    /// Returns true if the caller of a call was waiting when its copy sent a write, or until just before, as far as the
    /// copy could know.
    pub(super) fn is_in_time(&self, asked: &Asked, sent: Nanos) -> bool {
        asked.ended.is_none_or(|ended| sent <= ended + AT_ONCE || self.stood_still(asked.copy, ended, sent))
    }

    /// Returns true if a task of a copy didn't run from before `ended` to just before `sent`: it checked that its
    /// caller was waiting, and went on to its write after the caller had left.
    pub(super) fn stood_still(&self, copy: usize, ended: Nanos, sent: Nanos) -> bool {
        let is_it = |pause: &&Pause| pause.copy == copy && pause.began <= ended;
        self.pauses.iter().filter(is_it).any(|pause| (pause.ended..=pause.ended + AT_ONCE).contains(&sent))
    }

    /// Records the arrival of a request that was sent at this time.
    pub(crate) fn arrives(&mut self, parts: &Parts, sent: Nanos) {
        self.sent = sent;
        self.writer = writer(parts).map(str::to_owned);
    }

    /// Returns true if a copy has sent a write of a group, or of one of its Machines, between two times.
    pub(super) fn has_patched(&self, copy: usize, id: &str, from: Nanos, to: Nanos) -> bool {
        let name = id.rsplit('/').next().unwrap_or_default();
        let is_of_machine = |path: &str| {
            let named = path.split("/machines/").nth(1);
            named.is_some_and(|name| self.machines.values().any(|it| it.name == name && it.group == id))
        };
        let is_of = |path: &str| path.split(['/', '?']).any(|part| part == name) || is_of_machine(path);
        self.patches.iter().any(|(by, path, at)| *by == copy && (from..=to + AT_ONCE).contains(at) && is_of(path))
    }
}
