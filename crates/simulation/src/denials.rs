//! Denied Machines: in some worlds requests about some Machines fail for a while, as if a webhook failed for them or
//! their objects couldn't be converted. All other work of a copy must go on.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use http::{Method, request::Parts};

use crate::{
    chance::Chance,
    entropy::Nanos,
    faults::{Decision, RequestFault},
};

/// The denials of one world.
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
    /// Draws the denials up to a time.
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
