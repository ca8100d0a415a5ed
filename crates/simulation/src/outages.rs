//! What fails for a while. Some copies can't read a kind, as if a conversion failed; requests about some Machines fail, as
//! if a webhook failed for them; the API server is overloaded; copies lose rights; a group has no capacity.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use http::{Method, request::Parts};
use sandbox::Behaviour;
use serde_json::Value;

use crate::{
    entropy::{self, Nanos, SECOND},
    faults::{Decision, RequestFault},
    ledger::is_dry_run,
    operator,
    plan::{Chance, Habits},
};

const KINDS: [&str; 5] = ["clusters", "machinedeployments", "machinesets", "machines", "nodes"];

#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    pub(crate) copy: usize,
    kind: &'static str,
    pub(crate) from: Nanos,
    to: Nanos,
    fault: RequestFault,
    /// True if the API has lost the versions that were watched before: the next watch then gets an expiry error.
    is_expired: bool,
}

impl Outage {
    /// The decision that removes it.
    pub(crate) const DECISION: Decision = Decision { what: "outage", actor: 0, ordinal: 0 };

    /// Draws the outage of a world with so many copies, if it has one; it ends by a time.
    pub(crate) fn of(chance: Chance, copies: usize, until: Nanos) -> Option<Self> {
        let mut draw = chance.of("outage", 0, 0);
        if draw.u32(0..4) > 0 {
            return None;
        }
        let from = draw.u64(0..until.max(1));
        let to = (from + draw.u64(100..500) * SECOND).min(until);
        let fault = if draw.bool() { RequestFault::Refused(503) } else { RequestFault::LostBefore };
        let (copy, kind) = (draw.usize(0..copies), KINDS[draw.usize(0..KINDS.len())]);
        Some(Self { copy, kind, from, to, fault, is_expired: draw.u32(0..3) > 0 })
    }

    /// Returns true for the path of a list or a watch of the kind.
    pub(crate) fn concerns(&self, path: &str) -> bool {
        path.rsplit('/').next() == Some(self.kind)
    }

    pub(crate) fn of_request(&mut self, copy: usize, parts: &Parts, at: Nanos) -> Option<RequestFault> {
        let is_meant = copy == self.copy && parts.method == Method::GET && self.concerns(parts.uri.path());
        if !is_meant || at < self.from {
            return None;
        }
        if at < self.to {
            return Some(self.fault);
        }
        let query = parts.uri.query().unwrap_or_default();
        let resumes = query.contains("watch=true") && !query.contains("sendInitialEvents=true");
        (resumes && std::mem::take(&mut self.is_expired)).then_some(RequestFault::Refused(410))
    }
}

#[derive(Clone, Debug)]
struct Denial {
    /// The percentage of denied Machines.
    percent: u32,
    from: Nanos,
    to: Nanos,
    code: u16,
    /// True if they can't be read either.
    reads: bool,
}

/// Decides which requests about single Machines are denied.
#[derive(Clone, Debug)]
pub(crate) struct Denials {
    chance: Chance,
    denial: Option<Denial>,
    /// The Machines that were requested, each with true if it is denied.
    known: BTreeMap<String, bool>,
}

impl Denials {
    pub(crate) fn new(chance: Chance, until: Nanos) -> Self {
        let mut draw = chance.of("denials", 0, 0);
        let denial = (draw.u32(0..3) == 0).then(|| {
            let from = draw.u64(0..until.max(1));
            Denial {
                percent: [10, 30, 60][draw.usize(0..3)],
                from,
                to: if draw.bool() { until } else { draw.u64(from..until.max(from + 1)) },
                code: if draw.bool() { 403 } else { 500 },
                reads: draw.bool(),
            }
        });
        Self { chance, denial, known: BTreeMap::new() }
    }

    /// Returns the fault of a copy's request, unless `strikes` removes the denial of its Machine.
    pub(crate) fn of_request(
        &mut self,
        parts: &Parts,
        at: Nanos,
        strikes: impl FnOnce(Decision) -> bool,
    ) -> Option<RequestFault> {
        let denial = self.denial.as_ref()?;
        let name = parts.uri.path().split_once("/machines/")?.1;
        let is_write = matches!(parts.method, Method::PATCH | Method::DELETE);
        let is_meant = (denial.from..denial.to).contains(&at) && (is_write || denial.reads);
        if !is_meant {
            return None;
        }
        if let Some(is_denied) = self.known.get(name) {
            return is_denied.then_some(RequestFault::Refused(denial.code));
        }
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let decision = Decision { what: "denial", actor: 0, ordinal: hasher.finish() };
        let is_drawn = self.chance.of("denied", 0, decision.ordinal).u32(0..100) < denial.percent;
        let is_denied = is_drawn && strikes(decision);
        self.known.insert(name.to_owned(), is_denied);
        is_denied.then_some(RequestFault::Refused(denial.code))
    }
}

#[derive(Clone, Debug)]
struct Overload {
    ordinal: u64,
    copy: usize,
    /// The time after which the first write of a group starts the overload.
    from: Nanos,
    lasts: Nanos,
    /// The fault of that write.
    first: RequestFault,
}

#[derive(Clone, Debug)]
pub(crate) struct Overloads {
    chance: Chance,
    /// The future overloads, the next one last.
    to_come: Vec<Overload>,
    /// The currently affected copy, and the time at which its overload ends.
    now: Option<(usize, Nanos)>,
}

impl Overloads {
    /// Draws the overloads of a world with this number of copies, before `until`.
    pub(crate) fn new(chance: Chance, copies: usize, until: Nanos) -> Self {
        let mut draw = chance.of("overloads", 0, 0);
        let count = if draw.u32(0..3) == 0 { draw.u64(1..=6) } else { 0 };
        let mut to_come: Vec<_> = (0..count)
            .map(|ordinal| {
                let mut draw = chance.of("overload", 0, ordinal);
                let first = match draw.u32(0..3) {
                    0 => RequestFault::LostAfter,
                    // A write is given up after 10 s, and no further attempt begins after 20.
                    _ => RequestFault::Late(draw.u64(10_000..20_000) * SECOND / 1000),
                };
                let from = draw.u64(0..until.max(1));
                Overload { ordinal, copy: draw.usize(0..copies), from, lasts: draw.u64(5..30) * SECOND, first }
            })
            .collect();
        to_come.sort_by_key(|overload| std::cmp::Reverse(overload.from));
        Self { chance, to_come, now: None }
    }

    /// Returns the fault of a copy's request, unless `strikes` removes the overload that begins with it.
    pub(crate) fn of_request(
        &mut self,
        (copy, ordinal): (usize, u64),
        parts: &Parts,
        at: Nanos,
        strikes: impl FnOnce(Decision) -> bool,
    ) -> Option<RequestFault> {
        if let Some((meets, until)) = self.now
            && at < until
        {
            let mut draw = self.chance.of("in an overload", copy, ordinal);
            let is_refused = meets == copy && !is_watch(parts) && draw.u32(0..10) < 7;
            return is_refused.then(|| RequestFault::Refused([429, 429, 500, 503, 504][draw.usize(0..5)]));
        }
        let is_due = |overload: &mut Overload| overload.copy == copy && overload.from <= at && writes_group(parts);
        let begins = self.to_come.pop_if(is_due)?;
        if !strikes(Decision { what: "overload", actor: copy, ordinal: begins.ordinal }) {
            return None;
        }
        self.now = Some((copy, at + begins.lasts));
        Some(begins.first)
    }
}

fn is_watch(parts: &Parts) -> bool {
    parts.uri.query().is_some_and(|query| query.contains("watch=true"))
}

fn writes_group(parts: &Parts) -> bool {
    let path = parts.uri.path();
    let is_of_group =
        ["/machinedeployments/", "/machinesets/", "/machinepools/"].iter().any(|kind| path.contains(kind));
    parts.method == Method::PATCH && is_of_group && !is_dry_run(parts)
}

/// The time for which Cluster API stays down after the rights are back.
const LONGER: Nanos = 45 * SECOND;

/// A time without the right to write Machines.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is one part of the loss")]
struct Loss {
    ordinal: u64,
    /// The time from which the first deletion or mark begins it.
    from: Nanos,
    lasts: Nanos,
    /// True if that must be of a Machine that was named by hand, in a world whose people repeat failed deletes.
    by_hand: bool,
    /// The fault of that deletion.
    first: Option<RequestFault>,
    /// True if sizes can't be written, rather than Machines.
    of_sizes: bool,
    /// True if copies are restarted with their new rights.
    restarts: bool,
    /// True if Cluster API is down during the loss and a little longer, as in an upgrade of a whole cluster.
    stops_controllers: bool,
}

/// The effects of a loss of rights on a request.
#[derive(Debug, Default)]
pub(crate) struct Struck {
    pub(crate) fault: Option<RequestFault>,
    /// The loss that begins with it.
    pub(crate) begins: Option<Decision>,
    /// The time at which copies are killed for it.
    pub(crate) restarts: Option<Nanos>,
    /// The time until which Cluster API is down for it.
    pub(crate) controllers_until: Option<Nanos>,
}

#[derive(Clone, Debug)]
pub(crate) struct Rights {
    /// The future losses, the next one last.
    losses: Vec<Loss>,
    /// The time until which the right is lost.
    lost_until: Nanos,
    is_of_sizes: bool,
}

impl Rights {
    pub(crate) fn new(chance: Chance, until: Nanos) -> Self {
        let mut draw = chance.of("rights", 0, 0);
        let count = if draw.u32(0..3) > 0 { draw.u64(1..=4) } else { 0 };
        let mut losses: Vec<_> = (0..count)
            .map(|ordinal| {
                let mut draw = chance.of("loss of rights", 0, ordinal);
                let from = draw.u64(0..until.max(1));
                let is_short = draw.bool();
                let lasts = if is_short { draw.u64(5..30) } else { draw.u64(30..300) } * SECOND;
                let first = match draw.u32(0..4) {
                    0 => None,
                    // The deletion arrives when the right is back.
                    1 | 2 if is_short => Some(RequestFault::Late(lasts + draw.u64(1..40) * SECOND)),
                    _ => Some(RequestFault::LostAfter),
                };
                let is_late = matches!(first, Some(RequestFault::Late(_)));
                let by_hand = is_late && draw.u32(0..3) > 0 && operator::is_patient(chance);
                let restarts = if is_late { draw.u32(0..4) == 0 } else { draw.bool() };
                let stops_controllers = draw.u32(0..3) > 0;
                let of_sizes = draw.u32(0..3) == 0;
                let first = first.filter(|_| !of_sizes);
                Loss { ordinal, from, lasts, by_hand, first, of_sizes, restarts, stops_controllers }
            })
            .collect();
        losses.sort_by_key(|loss| std::cmp::Reverse(loss.from));
        Self { losses, lost_until: 0, is_of_sizes: false }
    }

    /// Returns the fault of a copy's request, which may have a waiting caller by hand.
    pub(crate) fn of_request(&mut self, parts: &Parts, by_hand: bool, at: Nanos, until: Nanos) -> Struck {
        let is_write = matches!(parts.method, Method::PATCH | Method::DELETE);
        let (is_of_machine, is_of_size) =
            (parts.uri.path().contains("/machines/"), parts.uri.path().ends_with("/scale"));
        if at >= until || !is_write || !(is_of_machine || is_of_size) {
            return Struck::default();
        }
        if at < self.lost_until {
            let fault = (self.is_of_sizes == is_of_size).then_some(RequestFault::Refused(403));
            return Struck { fault, ..Struck::default() };
        }
        if !is_of_machine || is_dry_run(parts) {
            return Struck::default();
        }
        let is_due = |loss: &mut Loss| loss.from <= at && (by_hand || !loss.by_hand);
        let Some(loss) = self.losses.pop_if(is_due) else { return Struck::default() };
        let begins = Decision { what: "rights", actor: 0, ordinal: loss.ordinal };
        let restarts = loss.restarts.then_some(at + loss.lasts);
        let controllers_until = loss.stops_controllers.then_some(at + loss.lasts + LONGER);
        (self.lost_until, self.is_of_sizes) = (at + loss.lasts, loss.of_sizes);
        Struck { fault: loss.first, begins: Some(begins), restarts, controllers_until }
    }

    /// Returns true if the lost right is that to write sizes.
    pub(crate) fn is_of_sizes(&self) -> bool {
        self.is_of_sizes
    }

    /// Removes the loss that has just begun.
    pub(crate) fn keep(&mut self) {
        self.lost_until = 0;
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Shortage {
    /// The group's name.
    pub(crate) group: String,
    pub(crate) from: Nanos,
    to: Nanos,
    pub(crate) behaviour: Behaviour,
    /// True if it comes with a rollout.
    pub(crate) rolls_out: bool,
}

impl Shortage {
    /// The decision that removes it.
    pub(crate) const DECISION: Decision = Decision { what: "shortage", actor: 0, ordinal: 0 };

    pub(crate) fn of(chance: Chance, habits: Habits, until: Nanos) -> Option<Self> {
        let mut draw = chance.of("shortage", 0, 0);
        let is_there = habits == Habits::Any && draw.u32(0..3) == 0;
        is_there.then(|| {
            let from = draw.u64(0..until.max(1));
            Self {
                group: format!("group-{}", draw.u32(0..2)),
                from,
                to: draw.u64(from..until.max(from + 1)),
                behaviour: [Behaviour::NoCapacity, Behaviour::Fails][draw.usize(0..2)],
                rolls_out: draw.bool(),
            }
        })
    }

    /// Returns true if it affects a Machine that is created now.
    pub(crate) fn meets(&self, machine: &Value) -> bool {
        let group = machine["metadata"]["labels"]["group"].as_str();
        group == Some(&self.group) && (self.from..self.to).contains(&entropy::now())
    }
}
