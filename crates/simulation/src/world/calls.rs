//! The path of calls and their answers between hosts and copies, and the faults on it.

use super::{Calling, Event, Member, World, hash};
use crate::{
    entropy::Nanos,
    faults::CallFault,
    host::TICK,
    ledger::Answered,
    network::{Answer, Call, HostId, RpcResult, cut},
};

impl World {
    pub(super) fn reply(&mut self, number: u64, result: RpcResult) {
        let Some(call) = self.calls.remove(&number) else { return };
        let code = result.as_ref().map(|answer| answer.status.code());
        self.report.calls += 1;
        self.report.commands += u64::from(call.is_command);
        self.trace.line(self.now, &format!("copy {} answers call {number}: {code:?}", call.copy));
        match &result {
            Ok(Answer { status, message, .. }) => {
                let answered = Answered { code: Some(status.code()), message, text: status.message() };
                self.ledger.answered(call.cluster, number, &answered);
            }
            Err(_) => self.ledger.of_mut(call.cluster).lost(number),
        }
        let (time, result) = match call.fault {
            Some(CallFault::LostAfter) => (self.now, Err(cut())),
            Some(CallFault::AnswerLate(by)) => (self.now + by, result),
            Some(CallFault::LostBefore | CallFault::Late(_)) | None => (self.now, result),
        };
        self.at(time, Event::Heard(call.from, call.reply, result));
    }

    pub(super) fn send_call(&mut self, at: Nanos, from: HostId, call: Call) {
        let ordinal = self.sent_calls.entry(from).or_default();
        *ordinal += 1;
        let ordinal = *ordinal;
        let mut time = at + self.chance.of("call", from, ordinal).u64(1..3) * TICK;
        let fault = self.faults.of_call(from, ordinal, at);
        if let Some(fault) = fault {
            self.trace.line(at, &format!("{from} {} of copy {}: {fault:?}", call.parts.uri.path(), call.to));
        }
        match fault {
            Some(CallFault::LostBefore) => return self.at(time, Event::Heard(from, call.reply, Err(cut()))),
            Some(CallFault::Late(by)) => time += by,
            Some(CallFault::LostAfter | CallFault::AnswerLate(_)) | None => {}
        }
        self.at(time, Event::Call(from, fault, call));
    }

    pub(super) fn call(&mut self, from: HostId, fault: Option<CallFault>, call: Call) {
        self.next_call += 1;
        let number = self.next_call;
        let Call { to, cluster, parts, body, reply } = call;
        self.trace.line(self.now, &format!("call {number} {} {:016x} of copy {to}", parts.uri.path(), hash(&body)));
        match &self.members[1 + to] {
            Member::Copy(copy) if !self.draining.contains_key(&to) => {
                self.ledger.of_mut(cluster).asked(number, to, parts.uri.path(), &body);
                let is_command = is_command(parts.uri.path());
                copy.answer(number, cluster, parts, body);
                self.calls.insert(number, Calling { from, copy: to, cluster, fault, is_command, reply });
            }
            Member::Copy(_) | Member::Plain(_) | Member::Dead => {
                let _ = reply.send(Err(cut()));
                self.deliver(from);
            }
        }
    }
}

/// Returns true for the path of a call that changes something.
fn is_command(path: &str) -> bool {
    let commands = ["NodeGroupIncreaseSize", "NodeGroupDecreaseTargetSize", "NodeGroupDeleteNodes"];
    commands.contains(&path.rsplit('/').next().unwrap_or_default())
}
