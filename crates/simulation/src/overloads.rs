//! Overloads of the API server. In a third of the worlds, a write of a group starts one: the API server refuses most
//! requests of one copy for seconds. That first write may arrive during the overload, after its sender gave up.

use http::{Method, request::Parts};

use crate::{
    chance::Chance,
    entropy::{Nanos, SECOND},
    faults::{Decision, RequestFault},
    ledger::is_dry_run,
};

/// An overload for one copy.
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

/// The overloads of one world.
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

/// Returns true for a write of a group's size.
fn writes_group(parts: &Parts) -> bool {
    let path = parts.uri.path();
    let is_of_group =
        ["/machinedeployments/", "/machinesets/", "/machinepools/"].iter().any(|kind| path.contains(kind));
    parts.method == Method::PATCH && is_of_group && !is_dry_run(parts)
}
