//! Kinds that can't be read: in some worlds one copy gets no list and no watch of a kind for minutes, as if a
//! conversion failed or an API server were overloaded. The copy's answers meanwhile must not count as fresh.

use http::{Method, request::Parts};

use crate::{
    chance::Chance,
    entropy::{Nanos, SECOND},
    faults::{Decision, RequestFault},
};

/// The kinds that copies need.
const KINDS: [&str; 5] = ["clusters", "machinedeployments", "machinesets", "machines", "nodes"];

/// The outage of a kind for one copy.
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

    /// Returns the fault of a copy's request.
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
