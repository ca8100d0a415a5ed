//! The options and disasters of copies: they drain or are killed, start again, stand still, their clocks jump, and they
//! can't reach a workload cluster of a fleet for a while, or to the end: all other Clusters must go on.

use anyhow::Result;
use http::Response;
use scale::{AtMinSize, ScaleOptions};
use tokio::sync::oneshot;
use tower::BoxError;

use super::{Event, Member, Stream, World, clusters::namespaces};
use crate::{
    copy::Copy,
    entropy::{Nanos, SECOND},
    faults::Decision,
    host::{Host, TICK},
    ledger::Check,
    memory,
    network::{ApiId, ApiRequest, Body, HostId, Port, cut},
    outages::Outage,
    plan::Chance,
    tasks::Scheduler,
};

/// The ordinal of the first kill that gives copies new rights.
pub(super) const RESTARTS: u64 = 1 << 20;
/// The ordinal of the first drain.
const DRAINS: u64 = 1 << 25;
/// The ordinal of the first kill at a write.
pub(super) const AT_WRITES: u64 = 1 << 30;

/// The options of a world's copies.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ways {
    at_min_size: AtMinSize,
    /// The copy that is started with `--read-only`.
    pub(super) read_only: Option<usize>,
}

impl Ways {
    /// Draws the options. In a sixth of the worlds no Machine is replaced at the min size, and in a sixth of those with
    /// several copies the last one is read-only.
    pub(super) fn of(chance: Chance, copies: usize) -> Self {
        let mut draw = chance.of("ways", 0, 0);
        let at_min_size = if draw.u32(0..6) == 0 { AtMinSize::Refuse } else { AtMinSize::Replace };
        let read_only = (draw.u32(0..6) == 0 && copies > 1).then(|| copies - 1);
        Self { at_min_size, read_only }
    }

    /// Returns true if Machines are replaced at the min size.
    pub(super) fn replaces(self) -> bool {
        self.at_min_size == AtMinSize::Replace
    }

    pub(super) fn options(self, copy: usize) -> ScaleOptions {
        let read_only = self.read_only == Some(copy);
        ScaleOptions { at_min_size: self.at_min_size, read_only, ..ScaleOptions::default() }
    }
}

impl World {
    /// Draws the times at which copies are killed or frozen, and at which their clocks jump.
    pub(super) fn plan_disasters(&mut self) {
        let most = [0, 2, 6][self.chance.of("disasters", 0, 0).usize(0..3)];
        for copy in 0..self.copies {
            for (what, event) in [
                ("kill", Event::Kill as fn(usize, u64) -> Event),
                ("drain", Event::Drain),
                ("freeze", Event::Freeze),
                ("jump", Event::Jump),
            ] {
                let mut draw = self.chance.of(what, copy, 0);
                for ordinal in 0..draw.u64(0..=most) {
                    let at = draw.u64(0..self.plan.seconds * 1000) * TICK;
                    self.at(at, event(copy, ordinal));
                }
            }
        }
        let until = self.plan.seconds * SECOND;
        if let Some(outage) = Outage::of(self.chance, self.copies, until) {
            self.at(outage.from, Event::Outage(outage));
        }
        if self.plan.fleet
            && let Some(silence) = Silence::of(self.chance, self.clusters.len(), until)
        {
            self.at(silence.from, Event::Silence(silence));
        }
    }

    /// Ends a copy's watches of a kind at the start of its outage.
    pub(super) fn cut_watches(&mut self, outage: Outage) {
        if !self.faults.strikes(Outage::DECISION) {
            return;
        }
        self.trace.line(self.now, &format!("{outage:?}"));
        self.outage = Some(outage);
        let is_cut = |stream: &Stream| stream.to == 1 + outage.copy && outage.concerns(stream.path());
        let mut cut: Vec<_> = self.streams.iter().filter(|(_, it)| is_cut(it)).map(|(number, _)| *number).collect();
        cut.sort_unstable();
        for number in cut {
            self.piece(number, None);
        }
    }

    /// Asks a copy to end: it takes no more calls, and finishes its work.
    pub(super) fn drain(&mut self, copy: usize, ordinal: u64) {
        if self.draining.contains_key(&copy) || !self.faults.strikes(Decision { what: "drain", actor: copy, ordinal }) {
            return;
        }
        if let Member::Copy(member) = &self.members[1 + copy] {
            self.trace.line(self.now, &format!("copy {copy} is asked to end"));
            self.draining.insert(copy, ordinal);
            self.ledger.each(|ledger| ledger.troubles(copy));
            member.drain();
        }
    }

    /// Handles the end of a copy that was asked to end.
    pub(super) fn drained(&mut self, host: HostId, is_done: bool) {
        let Some(copy) = self.copy_of(host) else { return };
        if let Some(ordinal) = self.draining.get(&copy).copied() {
            self.trace.line(self.now, &format!("copy {copy} has ended, all done: {is_done}"));
            let cut: Vec<u64> =
                self.calls.iter().filter(|(_, call)| call.copy == copy).map(|(number, _)| *number).collect();
            if is_done && !cut.is_empty() {
                let what = format!("copy {copy} was asked to end, and has left {cut:?} without an answer");
                self.ledger.find(Check::Drained, what);
            }
            self.end(copy, DRAINS + ordinal);
        }
    }

    pub(super) fn kill(&mut self, copy: usize, ordinal: u64) {
        let is_dead = matches!(self.members[1 + copy], Member::Dead);
        if !is_dead && self.faults.strikes(Decision { what: "kill", actor: copy, ordinal }) {
            self.trace.line(self.now, &format!("copy {copy} is killed"));
            self.end(copy, ordinal);
        }
    }

    /// Kills a copy at its awaits, to be started again later.
    fn end(&mut self, copy: usize, ordinal: u64) {
        if matches!(self.members[1 + copy], Member::Dead) {
            return;
        }
        self.draining.remove(&copy);
        self.members[1 + copy] = Member::Dead;
        self.ledger.each(|ledger| ledger.killed(copy));
        let lost: Vec<u64> =
            self.calls.iter().filter(|(_, call)| call.copy == copy).map(|(number, _)| *number).collect();
        for number in lost {
            if let Some(call) = self.calls.remove(&number) {
                self.ledger.of_mut(call.cluster).lost(number);
                drop(call.reply);
                self.deliver(call.from);
            }
        }
        self.streams.retain(|_, stream| stream.to != 1 + copy);
        let seconds = self.chance.of("restart", copy, ordinal).u64(1..40);
        self.at(self.now + seconds * SECOND, Event::Start(copy));
    }

    pub(super) fn start(&mut self, copy: usize) -> Result<()> {
        self.trace.line(self.now, &format!("copy {copy} starts"));
        self.start_copy(copy)
    }

    pub(super) fn start_copy(&mut self, copy: usize) -> Result<()> {
        let id = 1 + copy;
        let options = self.ways.options(copy);
        let member = self.new_copy(id, &format!("copy-{copy}"), self.schedulers[copy].clone(), options)?;
        self.frozen.remove(&id);
        self.members[id] = member;
        Ok(())
    }

    pub(super) fn new_copy(
        &self,
        id: HostId,
        name: &str,
        scheduler: Scheduler,
        options: ScaleOptions,
    ) -> Result<Member> {
        let host = Host::new(self.now)?;
        let port = Port::new(id, &host, &self.outbox);
        let places: Vec<_> = self.clusters.iter().map(|cluster| cluster.place).collect();
        let places = self.plan.fleet.then_some(places.as_slice());
        let remember = if self.plan.remember { memory::keys(&namespaces(&self.clusters)) } else { Vec::new() };
        Ok(Member::Copy(Box::new(Copy::start(host, port, name, scheduler, options, places, remember)?)))
    }

    pub(super) fn freeze(&mut self, copy: usize, ordinal: u64) {
        if !self.faults.strikes(Decision { what: "freeze", actor: copy, ordinal }) {
            return;
        }
        let seconds = self.chance.of("frozen for", copy, ordinal).u64(1..90);
        self.trace.line(self.now, &format!("copy {copy} stands still for {seconds} s"));
        self.frozen.entry(1 + copy).or_insert(self.now);
        self.ledger.each(|ledger| ledger.troubles(copy));
        self.at(self.now + seconds * SECOND, Event::Thaw(copy));
    }

    pub(super) fn thaw(&mut self, copy: usize) {
        if let Some(since) = self.frozen.remove(&(1 + copy))
            && let Some(host) = self.members[1 + copy].host()
        {
            host.jump(self.now);
            self.ledger.each(|ledger| ledger.troubles(copy));
            self.ledger.each(|ledger| ledger.stood(copy, since));
        }
    }

    pub(super) fn jump(&mut self, copy: usize, ordinal: u64) {
        if self.faults.strikes(Decision { what: "jump", actor: copy, ordinal })
            && let Member::Copy(member) = &mut self.members[1 + copy]
        {
            let by = self.chance.of("jumps by", copy, ordinal).i64(-600..600);
            member.host.skew(by * SECOND.cast_signed());
            self.ledger.each(|ledger| ledger.clocks_jump = true);
            self.trace.line(self.now, &format!("the clock of copy {copy} is {by} s off"));
        }
    }
}

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
        let is_meant = |stream: &Stream| stream.api == silence.cluster + 1 && copies.contains(&stream.to);
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
