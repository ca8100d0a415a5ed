//! The disasters of copies: they are killed and start again, stand still, and their clocks jump.

use anyhow::Result;

use super::{Event, Member, World};
use crate::{
    copy::Copy,
    entropy::SECOND,
    faults::Decision,
    host::{Host, TICK},
    network::{HostId, Port},
    tasks::Scheduler,
};

/// The number of the first kill that gives copies new rights.
pub(super) const RESTARTS: u64 = 1 << 20;
/// The number of the first kill at a write.
pub(super) const AT_WRITES: u64 = 1 << 30;

impl World {
    /// Draws when copies are killed or frozen, and when their clocks jump.
    pub(super) fn plan_disasters(&mut self) {
        let most = [0, 2, 6][self.chance.of("disasters", 0, 0).usize(0..3)];
        for copy in 0..self.copies {
            for (what, event) in
                [("kill", Event::Kill as fn(usize, u64) -> Event), ("freeze", Event::Freeze), ("jump", Event::Jump)]
            {
                let mut draw = self.chance.of(what, copy, 0);
                for ordinal in 0..draw.u64(0..=most) {
                    let at = draw.u64(0..self.plan.seconds * 1000) * TICK;
                    self.at(at, event(copy, ordinal));
                }
            }
        }
    }

    pub(super) fn kill(&mut self, copy: usize, ordinal: u64) {
        if !self.faults.strikes(Decision { what: "kill", actor: copy, ordinal })
            || matches!(self.members[1 + copy], Member::Dead)
        {
            return;
        }
        self.trace.line(self.now, &format!("copy {copy} is killed"));
        self.members[1 + copy] = Member::Dead;
        self.ledger.killed(copy);
        let lost: Vec<u64> =
            self.calls.iter().filter(|(_, call)| call.copy == copy).map(|(number, _)| *number).collect();
        for number in lost {
            self.ledger.lost(number);
            if let Some(call) = self.calls.remove(&number) {
                drop(call.reply);
                self.deliver(call.from);
            }
        }
        self.streams.retain(|_, stream| stream.to != 1 + copy);
        let seconds = self.chance.of("restart", copy, ordinal).u64(1..40);
        self.at(self.now + seconds * SECOND, Event::Start(copy));
    }

    /// A copy that was killed starts again.
    pub(super) fn start(&mut self, copy: usize) -> Result<()> {
        self.trace.line(self.now, &format!("copy {copy} starts"));
        self.start_copy(copy)
    }

    pub(super) fn start_copy(&mut self, copy: usize) -> Result<()> {
        let id = 1 + copy;
        let member = self.new_copy(id, &format!("copy-{copy}"), self.schedulers[copy].clone())?;
        self.frozen.remove(&id);
        self.members[id] = member;
        Ok(())
    }

    /// A copy on a new host of this number.
    pub(super) fn new_copy(&self, id: HostId, name: &str, scheduler: Scheduler) -> Result<Member> {
        let host = Host::new(self.now)?;
        let port = Port::new(id, &host, &self.outbox);
        Ok(Member::Copy(Box::new(Copy::start(host, port, name, scheduler))))
    }

    pub(super) fn freeze(&mut self, copy: usize, ordinal: u64) {
        if !self.faults.strikes(Decision { what: "freeze", actor: copy, ordinal }) {
            return;
        }
        let seconds = self.chance.of("frozen for", copy, ordinal).u64(1..90);
        self.trace.line(self.now, &format!("copy {copy} stands still for {seconds} s"));
        self.frozen.insert(1 + copy);
        self.ledger.troubles(copy);
        self.at(self.now + seconds * SECOND, Event::Thaw(copy));
    }

    pub(super) fn thaw(&mut self, copy: usize) {
        if self.frozen.remove(&(1 + copy))
            && let Some(host) = self.members[1 + copy].host()
        {
            host.jump(self.now);
            self.ledger.troubles(copy);
        }
    }

    pub(super) fn jump(&mut self, copy: usize, ordinal: u64) {
        if self.faults.strikes(Decision { what: "jump", actor: copy, ordinal })
            && let Member::Copy(member) = &mut self.members[1 + copy]
        {
            let by = self.chance.of("jumps by", copy, ordinal).i64(-600..600);
            member.host.skew(by * SECOND.cast_signed());
            self.ledger.clocks_jump = true;
            self.trace.line(self.now, &format!("the clock of copy {copy} is {by} s off"));
        }
    }
}
