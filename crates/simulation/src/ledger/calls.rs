//! Checks on calls of the program: the request, its answer, and the writes for it.

use std::collections::BTreeSet;

use proto::{
    NodeGroupDecreaseTargetSizeRequest, NodeGroupDeleteNodesRequest, NodeGroupIncreaseSizeRequest,
    NodeGroupNodesRequest, NodeGroupTargetSizeRequest, NodeGroupTargetSizeResponse,
};
use tonic::Code;

use super::{
    Check, Group, Ledger,
    instances::lasting,
    log::{Entry, Log, SoftEntry},
    watches::TAKEN_UP,
};
use crate::{
    entropy::{Nanos, SECOND},
    host::TICK,
};

/// The longest time for which a command continues after its caller has left.
pub(super) const RUNS_ON: Nanos = 600 * SECOND;
/// The longest time from the decision to write to the sending of the write.
pub(super) const AT_ONCE: Nanos = 50_000_000;
/// The reason why a caller may be gone before the first write of its command is sent.
pub(super) const STOOD_STILL: &str = "a copy stands still between its look at its caller and its write";

/// A call.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) copy: usize,
    pub(super) at: Nanos,
    pub(super) ended: Option<Nanos>,
    pub(super) is_ok: bool,
    /// True if it was refused for good.
    pub(super) is_refused: bool,
    pub(super) request: Request,
    /// The group's rollout that the copy knew of; only set for a delete.
    rollout: Option<u64>,
    /// The Machines named by a delete that were already in the log: their deletion goes on, whatever the answer to this
    /// request.
    pub(super) decided: BTreeSet<String>,
    /// True if the copy stood still and sent the first write after the caller had left. The command continues anyway.
    pub(super) began_late: bool,
    /// The Machines named by a delete that were wanted when its caller left: it had joined their deletion, so that its
    /// size write goes on.
    pub(super) joined: BTreeSet<String>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Request {
    Increase {
        group: String,
        delta: i64,
    },
    Decrease {
        group: String,
        delta: i64,
    },
    /// The Machines by uid, and the number of instances without one.
    Delete {
        group: String,
        uids: BTreeSet<String>,
        places: i64,
    },
    TargetSize {
        group: String,
    },
    Instances {
        group: String,
    },
    Other(&'static str),
}

/// The end of a call.
#[derive(Clone, Debug)]
pub(crate) struct Answered<'a> {
    /// The code, or `None` if the connection was cut.
    pub(crate) code: Option<Code>,
    pub(crate) message: &'a [u8],
    /// The error's text.
    pub(crate) text: &'a str,
}

pub(super) fn decode<M: prost::Message + Default>(message: &[u8]) -> M {
    // The gRPC prefix of five bytes holds the compression flag and the length.
    M::decode(message.get(5..).unwrap_or_default()).unwrap_or_default()
}

/// Returns true if a code leaves the outcome unknown or asks for a retry.
pub(super) fn is_open(code: Code) -> bool {
    matches!(code, Code::Unavailable | Code::Aborted | Code::DeadlineExceeded | Code::Cancelled)
}

impl Ledger {
    /// Records a call that arrives at a copy.
    pub(crate) fn asked(&mut self, number: u64, copy: usize, path: &str, message: &[u8]) {
        let request = match path.rsplit('/').next().unwrap_or_default() {
            "NodeGroupIncreaseSize" => {
                let request: NodeGroupIncreaseSizeRequest = decode(message);
                Request::Increase { group: request.id, delta: request.delta.into() }
            }
            "NodeGroupDecreaseTargetSize" => {
                let request: NodeGroupDecreaseTargetSizeRequest = decode(message);
                Request::Decrease { group: request.id, delta: request.delta.into() }
            }
            "NodeGroupDeleteNodes" => {
                let request: NodeGroupDeleteNodesRequest = decode(message);
                let (mut uids, mut places) = (BTreeSet::new(), 0);
                // A read-only copy takes no Machine.
                let is_read_only = self.read_only == Some(copy);
                for node in &request.nodes {
                    match self.machine_of(&node.provider_id) {
                        Some(uid) => {
                            if !is_read_only && !lasting(&node.provider_id).starts_with("pending-machine-") {
                                self.named_with_node.insert(uid.clone());
                            }
                            uids.insert(uid);
                        }
                        None => {
                            if !is_read_only {
                                self.named_instances.insert(node.provider_id.clone());
                            }
                            places += 1;
                        }
                    }
                }
                if !is_read_only {
                    self.named.extend(uids.iter().cloned());
                }
                Request::Delete { group: request.id, uids, places }
            }
            "NodeGroupTargetSize" => {
                let request: NodeGroupTargetSizeRequest = decode(message);
                Request::TargetSize { group: request.id }
            }
            "NodeGroupNodes" => {
                let request: NodeGroupNodesRequest = decode(message);
                Request::Instances { group: request.id }
            }
            "NodeGroups" => Request::Other("NodeGroups"),
            "Refresh" => {
                self.refreshes(copy);
                Request::Other("Refresh")
            }
            "NodeGroupForNode" => Request::Other("NodeGroupForNode"),
            _ => Request::Other(""),
        };
        let rollout = match &request {
            Request::Delete { group, .. } => self.known_rollout(copy, group),
            _ => None,
        };
        let decided = match &request {
            Request::Delete { group, uids, .. } => self.decided(group, uids),
            _ => BTreeSet::new(),
        };
        let asked = Asked {
            copy,
            at: self.now,
            ended: None,
            is_ok: false,
            is_refused: false,
            request,
            rollout,
            decided,
            began_late: false,
            joined: BTreeSet::new(),
        };
        self.asked.insert(number, asked);
        // Calls end in nearly the order in which they came.
        while let Some(first) = self.asked.first_entry()
            && first.get().ended.is_some_and(|ended| self.now.saturating_sub(ended) >= RUNS_ON)
        {
            let number = *first.key();
            first.remove();
            self.writes.retain(|_, write| write.call != number);
        }
    }

    /// Returns the Machine of an instance id.
    pub(super) fn machine_of(&self, id: &str) -> Option<String> {
        let name = ["pending-machine-", "failed-machine-", "deleting-machine-"]
            .iter()
            .find_map(|prefix| lasting(id).strip_prefix(prefix))
            .and_then(|rest| rest.split_once('_'))
            .map(|(_, name)| name);
        let is_it = |machine: &super::Machine| {
            !machine.is_gone && name.map_or(machine.provider_id == id, |name| machine.name == name)
        };
        self.machines.iter().find(|(_, machine)| is_it(machine)).map(|(uid, _)| uid.clone())
    }

    /// Records the end of a call.
    pub(crate) fn answered(&mut self, number: u64, answered: &Answered<'_>) {
        let now = self.now;
        let Some(asked) = self.asked.get_mut(&number) else { return };
        asked.ended = Some(now);
        if let Request::Delete { group, uids, .. } = &asked.request
            && let Some(group) = self.groups.get(group)
        {
            let is_wanted = |entry: &Entry| !entry.is_lowered && !entry.is_soft;
            asked.joined = uids.iter().filter(|uid| group.log.get(*uid).is_some_and(is_wanted)).cloned().collect();
        }
        asked.is_ok = answered.code == Some(Code::Ok);
        asked.is_refused = answered.code.is_some_and(|code| code != Code::Ok && !is_open(code));
        let asked = asked.clone();
        if asked.request == Request::Other("Refresh") {
            self.refreshes(asked.copy);
            if asked.is_ok {
                self.last_fresh.insert(asked.copy, asked.at);
                self.refreshed(asked.copy);
            }
        }
        self.is_of_caller(&asked, answered);
        let Some(code) = answered.code else { return };
        if self.read_only == Some(asked.copy) && self.is_read_only_answer(&asked, code) {
            return;
        }
        match &asked.request {
            Request::Increase { group, delta } => {
                self.increase_is_done(number, &asked, code, (group, *delta));
                if matches!(code, Code::FailedPrecondition | Code::InvalidArgument) {
                    self.increase_for_cause((asked.copy, asked.at), group, *delta, answered.text);
                }
            }
            Request::Delete { uids, .. } if code == Code::Ok => {
                self.ok_deletes.extend(uids.iter().map(|uid| (uid.clone(), now)));
            }
            Request::Delete { group, uids, places } if !is_open(code) => {
                self.refused(number, &asked, group, uids, answered);
                self.delete_for_cause((asked.copy, asked.at), group, (uids, *places), answered.text);
                self.delete_is_denied(asked.copy, uids, answered.text);
            }
            Request::Decrease { group, .. } if asked.is_refused => {
                self.decrease_is_refused(number, &asked, group, code);
            }
            Request::Instances { group } if code == Code::Ok => {
                self.instances(asked.copy, group, asked.at, &decode(answered.message));
            }
            Request::TargetSize { group } if code == Code::Ok => {
                let answer: NodeGroupTargetSizeResponse = decode(answered.message);
                self.size_is_visible(&asked, group, answer.target_size.into());
            }
            Request::Other("NodeGroups") if code == Code::Ok => self.groups_answered(&asked, answered.message),
            Request::Other("NodeGroupForNode") if code == Code::Ok => {
                self.group_of_node_answered(&asked, answered.message);
            }
            // A fleet denies those whose Cluster it doesn't serve, and none until it knows the Clusters.
            Request::Other("NodeGroupForNode")
                if self.is_of_fleet() && matches!(code, Code::PermissionDenied | Code::Unavailable) => {}
            Request::Other("NodeGroupForNode") => {
                self.find(Check::Consistent, format!("copy {} answers NodeGroupForNode with {code:?}", asked.copy));
            }
            Request::Decrease { .. }
            | Request::Delete { .. }
            | Request::TargetSize { .. }
            | Request::Instances { .. }
            | Request::Other(_) => {}
        }
    }

    /// Checks an answer of a read-only copy. Returns true for a request that would write; the copy did nothing for it.
    fn is_read_only_answer(&mut self, asked: &Asked, code: Code) -> bool {
        let knows = |group: &str| self.knows(asked.copy, group, asked.at.saturating_sub(TAKEN_UP));
        let is_alive = |uid: &String| {
            let is_there = self.machines.get(uid).is_some_and(|machine| !machine.is_deleting && !machine.is_gone);
            is_there && !self.groups.values().any(|group| group.log.contains_key(uid))
        };
        let is_work = match &asked.request {
            Request::Increase { .. } | Request::Decrease { .. } => true,
            // An instance without a Machine may be one that is gone.
            Request::Delete { group, uids, places: _ } => knows(group) && uids.iter().any(is_alive),
            Request::TargetSize { .. } | Request::Instances { .. } | Request::Other(_) => return false,
        };
        if code == Code::Ok && is_work {
            let what = format!("copy {} may not write, and answers {:?} with OK", asked.copy, asked.request);
            self.find(Check::ReadOnly, what);
        }
        true
    }

    /// Checks each entry that a copy adds to a log: a caller must be waiting for it, or must have waited at its first
    /// write.
    pub(super) fn logged_in_time(&mut self, copy: usize, id: &str, before: &Log, after: &Log) {
        let sent = self.sent;
        let is_new = |(uid, entry): &(&String, &Entry)| before.get(*uid).is_none_or(|old| old.ticket != entry.ticket);
        let (mut late, mut refused) = (Vec::new(), Vec::new());
        for (uid, entry) in after.iter().filter(is_new) {
            if entry.is_soft {
                let (uid, ticket) = (uid.clone(), entry.ticket.clone());
                self.soft.push(SoftEntry { sent, copy, group: id.to_owned(), uid, ticket });
            }
            // A Machine that hangs in deletion may be logged for a placeholder.
            let names = |asked: &&Asked| {
                let names = match &asked.request {
                    Request::Delete { group, uids, places } => {
                        !entry.is_soft && (uids.contains(uid) || (group == id && *places > 0))
                    }
                    Request::Decrease { group, .. } => entry.is_soft && group == id,
                    Request::Increase { .. }
                    | Request::TargetSize { .. }
                    | Request::Instances { .. }
                    | Request::Other(_) => false,
                };
                // A copy's clock may be a tick behind that of the world, which dates calls.
                names && asked.copy == copy && asked.at <= sent + TICK
            };
            let goes_on = |asked: &Asked| asked.ended.is_some_and(|ended| self.has_patched(copy, id, asked.at, ended));
            let waits = |asked: &&Asked| self.is_in_time(asked, sent) || asked.began_late || goes_on(asked);
            let mut waiting = self.asked.values().filter(names).filter(waits).peekable();
            if waiting.peek().is_none() {
                if self.asked.values().any(|asked| names(&asked)) {
                    late.push(entry.name.clone());
                }
            } else if entry.is_soft && waiting.all(|asked| asked.is_refused) {
                refused.push(entry.name.clone());
            }
        }
        for name in late {
            let what = format!("copy {copy} logged {name} of {id} after all who had asked for it had left");
            self.find(Check::AfterDeadline, what);
        }
        for name in refused {
            let what = format!("copy {copy} has refused a decrease of {id}, for which {name} comes into the log");
            self.find(Check::RefusedLeavesNothing, what);
        }
    }

    /// Returns the rollout that a copy knew of at every request to delete a Machine.
    pub(super) fn named_in_rollout(&self, copy: usize, uid: &str) -> Option<u64> {
        let names = |asked: &&Asked| {
            matches!(&asked.request, Request::Delete { uids, .. } if uids.contains(uid)) && asked.copy == copy
        };
        self.asked.values().filter(names).map(|asked| asked.rollout).min().flatten()
    }

    pub(super) fn is_named_by_others(&self, number: u64, uid: &str) -> bool {
        self.asked.iter().any(|(other, asked)| {
            *other != number && matches!(&asked.request, Request::Delete { uids, .. } if uids.contains(uid))
        })
    }

    /// Records a lost connection or a dead copy: the call has ended for its caller.
    pub(crate) fn lost(&mut self, number: u64) {
        self.answered(number, &Answered { code: None, message: &[], text: "" });
    }

    /// Records the kill of a copy: its commands end with it, but its sent requests may still arrive.
    pub(crate) fn killed(&mut self, copy: usize) {
        self.last_groups.remove(&copy);
        self.last_killed.insert(copy, self.now);
        self.denied.retain(|(of, _), _| *of != copy);
        self.known_gone.retain(|(of, _), _| *of != copy);
        self.forget_watches(copy);
    }

    /// Records a size that a copy has written for no entry of the deletion log.
    pub(super) fn size_of_command(&mut self, copy: usize, id: &str, before: &Group, size: i64) {
        let by = size - before.size;
        if by > 0 {
            return self.increased(copy, id, (before.size, size));
        }
        // One write may lower a MachinePool for the instances of several requests.
        let is_assigned = if id.starts_with("MachinePool/") {
            (by..0).all(|_| self.assign(copy, id, -1))
        } else {
            self.assign(copy, id, by)
        };
        if !is_assigned {
            self.find_author_missing(copy, id, (before.size, size));
        }
    }

    /// Returns true if a call deletes instances without a Machine from this group, or decreases the group's size.
    pub(super) fn has_place_command(&self, id: &str) -> bool {
        self.asked.values().any(|asked| match &asked.request {
            Request::Delete { group, places, .. } => group == id && *places > 0,
            Request::Decrease { group, .. } => group == id,
            Request::Increase { .. } | Request::TargetSize { .. } | Request::Instances { .. } | Request::Other(_) => {
                false
            }
        })
    }
}
