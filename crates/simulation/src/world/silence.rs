//! A workload cluster of a fleet that copies can't reach for a while, or from some time on to the end: all other
//! Clusters must go on.

use http::Response;
use tokio::sync::oneshot;
use tower::BoxError;

use super::{Event, World};
use crate::{
    chance::Chance,
    entropy::{Nanos, SECOND},
    faults::Decision,
    network::{ApiId, ApiRequest, Body, HostId, cut},
};

/// A time in which copies can't reach a workload cluster.
#[derive(Debug)]
pub(super) struct Silence {
    cluster: usize,
    pub(super) from: Nanos,
    /// `None` stands for the end of the world.
    to: Option<Nanos>,
    /// True if requests are left without an answer; else connections are refused.
    hangs: bool,
    /// The requests that have none.
    held: Vec<oneshot::Sender<Result<Response<Body>, BoxError>>>,
}

impl Silence {
    const DECISION: Decision = Decision { what: "workload", actor: 0, ordinal: 0 };

    /// Draws the silence of a world with so many Clusters, if it has one.
    pub(super) fn of(chance: Chance, clusters: usize, until: Nanos) -> Option<Self> {
        let mut draw = chance.of("silence", 0, 0);
        (draw.u32(0..3) > 0).then(|| {
            let from = draw.u64(0..until.max(1));
            let lasts = draw.u64(30..1500) * SECOND;
            let to = draw.bool().then(|| (from + lasts).min(until));
            Self { cluster: draw.usize(0..clusters), from, to, hangs: draw.bool(), held: Vec::new() }
        })
    }

    fn concerns(&self, api: ApiId, at: Nanos) -> bool {
        api == self.cluster + 1 && at >= self.from && self.to.is_none_or(|to| at < to)
    }
}

impl World {
    /// Begins the silence of a workload cluster: nothing more comes of what copies watch there.
    pub(super) fn falls_silent(&mut self, silence: Silence) {
        if !self.faults.strikes(Silence::DECISION) {
            return;
        }
        self.trace.line(self.now, &format!("{silence:?}"));
        let copies = 1..=self.copies;
        let is_meant = |stream: &super::Stream| stream.api == silence.cluster + 1 && copies.contains(&stream.to);
        let mut numbers: Vec<_> =
            self.streams.iter().filter(|(_, it)| is_meant(it)).map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        for number in numbers {
            if !silence.hangs {
                self.piece(number, None);
            } else if let Some(stream) = self.streams.get_mut(&number) {
                stream.is_silent = true;
                let now = self.now;
                self.ledger.each(|ledger| ledger.silences(number, now));
            }
        }
        self.silence = Some(silence);
    }

    /// Takes a request of a copy to a workload cluster that it can't reach.
    pub(super) fn unreached(&mut self, at: Nanos, from: HostId, request: ApiRequest) -> Option<ApiRequest> {
        let copy = self.copy_of(from);
        if let Some(silence) = self.silence.as_mut().filter(|silence| silence.to.is_some_and(|to| at >= to)) {
            silence.held.clear();
        }
        let Some(silence) = self.silence.as_mut().filter(|silence| silence.concerns(request.to, at)) else {
            return Some(request);
        };
        let Some(copy) = copy else { return Some(request) };
        self.ledger.of_mut(silence.cluster).troubles(copy);
        if silence.hangs {
            silence.held.push(request.reply);
        } else {
            self.at(at, Event::Answer(from, request.reply, Err(cut())));
        }
        None
    }

    /// Returns the numbers of the Clusters that copies can reach at the end.
    pub(super) fn reached(&self) -> Vec<usize> {
        let unreached = self.silence.as_ref().filter(|silence| silence.to.is_none()).map(|silence| silence.cluster);
        (0..self.clusters.len()).filter(|cluster| Some(*cluster) != unreached).collect()
    }
}
