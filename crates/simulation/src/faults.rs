//! Faults of messages, hosts and clocks. Each fault is one decision of the plan. Removing it doesn't change any other
//! decision.

use std::{collections::BTreeSet, fmt, str::FromStr};

use anyhow::Context as _;
use fastrand::Rng;

use crate::{
    entropy::{Nanos, SECOND},
    host::TICK,
    plan::Chance,
};

/// The message of an injected error response.
pub(crate) const MADE_UP: &str = "made up by the simulation";

/// The identity of a decision: its subject, its actor, and its ordinal.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Decision {
    /// The subject.
    pub what: &'static str,
    /// The actor.
    pub actor: usize,
    /// The ordinal among the decisions of the same kind.
    pub ordinal: u64,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.what, self.actor, self.ordinal)
    }
}

/// The kinds of decisions that aren't faults: acts of people and other programs, and the fates of Machines.
const ACTS: [&str; 10] =
    ["operator", "people", "workloads", "tenant", "owner", "kinds", "memory", "fate", "shortage", "ailing"];

const FAULTS: [&str; 16] = [
    "request",
    "piece",
    "watch",
    "call",
    "kill",
    "drain",
    "freeze",
    "jump",
    "controller",
    "restart",
    "task",
    "rights",
    "denial",
    "outage",
    "overload",
    "workload",
];

impl Decision {
    /// Returns true for a fault, and false for an act or the fate of a Machine.
    pub(crate) fn is_fault(&self) -> bool {
        !ACTS.contains(&self.what)
    }
}

impl FromStr for Decision {
    type Err = anyhow::Error;

    /// Parses `kind actor ordinal`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<_> = text.split(' ').collect();
        let [what, actor, ordinal] = parts.as_slice() else {
            anyhow::bail!("{text:?} is no decision: it must be a kind, an actor and a number, such as `kill 0 1`")
        };
        let kinds = || FAULTS.into_iter().chain(ACTS);
        let what = kinds().find(|kind| kind == what);
        let all = || kinds().collect::<Vec<_>>().join(", ");
        let what = what.with_context(|| format!("{text:?} is no decision: the kinds are {}", all()))?;
        Ok(Self { what, actor: actor.parse()?, ordinal: ordinal.parse()? })
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RequestFault {
    LostBefore,
    /// The request is carried out, and its answer never arrives.
    LostAfter,
    /// The request is answered with this status and not carried out.
    Refused(u16),
    /// The request arrives late, perhaps after its sender gave up.
    Late(Nanos),
    /// The request is carried out and answered with this status, as by a gateway that has timed out.
    DoneBut(u16),
    /// Its answer arrives late.
    AnswerLate(Nanos),
    /// The request is carried out, and its answer is no JSON.
    Garbage,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PieceFault {
    /// The chunk and all after it come late.
    Late(Nanos),
    Cut,
    /// The chunk comes twice.
    Doubled,
    /// The chunk never comes, if it is a bookmark.
    NoBookmark,
    /// Neither the chunk nor anything after it comes, nor an end: the connection is silently dead.
    Silent,
    /// The chunk before it comes once more after it.
    Outdated,
}

/// The end of a watch that nothing else has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum WatchEnd {
    /// The connection is cut, idle or not.
    Cut,
    /// The API reports that the version has expired.
    Expired,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CallFault {
    LostBefore,
    /// The call is carried out, and its answer never arrives.
    LostAfter,
    Late(Nanos),
    /// Its answer arrives late.
    AnswerLate(Nanos),
}

#[derive(Clone, Debug)]
pub(crate) struct Faults {
    chance: Chance,
    /// The number of faults in 10,000 requests.
    requests: u32,
    pieces: u32,
    calls: u32,
    kills: u32,
    /// The time from which messages have no faults.
    pub(crate) until: Nanos,
    skipped: BTreeSet<Decision>,
    pub(crate) struck: Vec<Decision>,
}

impl Faults {
    pub(crate) fn new(chance: Chance, until: Nanos, skipped: BTreeSet<Decision>) -> Self {
        let mut draw = chance.of("faults", 0, 0);
        let level = |draw: &mut Rng| [0, 50, 200, 800][draw.usize(0..4)];
        let (requests, pieces, calls) = (level(&mut draw), level(&mut draw), level(&mut draw) / 4);
        let kills = [0, 0, 20, 100][draw.usize(0..4)];
        Self { chance, requests, pieces, calls, kills, until, skipped, struck: Vec::new() }
    }

    /// Records a decision and returns true, unless the decision is skipped.
    pub(crate) fn strikes(&mut self, decision: Decision) -> bool {
        let strikes = !self.skipped.contains(&decision);
        if strikes {
            self.struck.push(decision);
        }
        strikes
    }

    /// Draws a fault at a rate per 10,000. Returns the generator with which its kind is drawn.
    fn draws(&mut self, mut draw: Rng, rate: u32, decision: Decision, at: Nanos) -> Option<Rng> {
        (at < self.until && draw.u32(0..10_000) < rate && self.strikes(decision)).then_some(draw)
    }

    pub(crate) fn of_request(&mut self, actor: usize, ordinal: u64, at: Nanos, is_watch: bool) -> Option<RequestFault> {
        let draw = self.chance.of("fault of request", actor, ordinal);
        let mut draw = self.draws(draw, self.requests, Decision { what: "request", actor, ordinal }, at)?;
        Some(match draw.u32(0..11) {
            0 | 1 => RequestFault::LostBefore,
            2 | 3 => RequestFault::LostAfter,
            10 if !is_watch => RequestFault::DoneBut([500, 502, 503, 504][draw.usize(0..4)]),
            4 => RequestFault::Late(draw.u64(1..60) * SECOND),
            5 => RequestFault::AnswerLate(draw.u64(1..30) * SECOND),
            6 => RequestFault::Garbage,
            _ if is_watch => RequestFault::Refused([410, 401, 403, 429, 500, 503][draw.usize(0..6)]),
            _ => RequestFault::Refused([401, 403, 409, 422, 429, 500, 503, 504][draw.usize(0..8)]),
        })
    }

    pub(crate) fn of_piece(&mut self, actor: usize, ordinal: u64, at: Nanos) -> Option<PieceFault> {
        let draw = self.chance.of("fault of piece", actor, ordinal);
        let mut draw = self.draws(draw, self.pieces, Decision { what: "piece", actor, ordinal }, at)?;
        Some(match draw.u32(0..8) {
            0 | 1 => PieceFault::Cut,
            2 | 3 => PieceFault::Late(draw.u64(1..90) * SECOND),
            4 => PieceFault::Doubled,
            5 => PieceFault::Silent,
            6 => PieceFault::Outdated,
            _ => PieceFault::NoBookmark,
        })
    }

    /// Draws the time and kind of the end of a watch that begins at this time, unless something else ends it.
    pub(crate) fn of_watch(&mut self, actor: usize, ordinal: u64, at: Nanos) -> Option<(Nanos, WatchEnd)> {
        let mut draw = self.chance.of("fault of watch", actor, ordinal);
        let ends = at + draw.u64(1..250) * SECOND;
        let is_drawn = self.pieces > 0 && draw.u32(0..4) == 0;
        if !is_drawn || ends >= self.until || !self.strikes(Decision { what: "watch", actor, ordinal }) {
            return None;
        }
        Some((ends, if draw.bool() { WatchEnd::Cut } else { WatchEnd::Expired }))
    }

    pub(crate) fn of_call(&mut self, actor: usize, ordinal: u64, at: Nanos) -> Option<CallFault> {
        let draw = self.chance.of("fault of call", actor, ordinal);
        let mut draw = self.draws(draw, self.calls, Decision { what: "call", actor, ordinal }, at)?;
        Some(match draw.u32(0..4) {
            0 => CallFault::LostBefore,
            1 => CallFault::LostAfter,
            2 => CallFault::Late(draw.u64(100..2_000) * TICK),
            _ => CallFault::AnswerLate(draw.u64(100..2_000) * TICK),
        })
    }

    /// Draws the time at which a copy is killed because it sends a write now: before or after the write arrives. The
    /// kill is a separate decision.
    pub(crate) fn of_kill(&self, actor: usize, ordinal: u64, at: Nanos) -> Option<Nanos> {
        let mut draw = self.chance.of("kill at a write", actor, ordinal);
        (at < self.until && draw.u32(0..10_000) < self.kills).then(|| at + draw.u64(0..60) * TICK)
    }
}

/// Draws the latency of a message: mostly milliseconds, now and then seconds.
pub(crate) fn latency(draw: &mut Rng) -> Nanos {
    let milliseconds = match draw.u32(0..100) {
        0 => draw.u64(500..4000),
        1..10 => draw.u64(20..500),
        _ => draw.u64(1..20),
    };
    milliseconds * TICK
}
