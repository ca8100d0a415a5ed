//! Checks on calls of the program: the request, its answer, and the requests that copies send for them. A copy waits
//! before it repeats a request, and a write needs a waiting caller.

use std::collections::BTreeSet;

use http::{Method, request::Parts};
use proto::{
    NodeGroupDecreaseTargetSizeRequest, NodeGroupDeleteNodesRequest, NodeGroupIncreaseSizeRequest,
    NodeGroupNodesRequest, NodeGroupTargetSizeRequest, NodeGroupTargetSizeResponse, NodeGroupTemplateNodeInfoRequest,
};
use tonic::Code;

use super::{Check, Group, Ledger, answers::lasting, watches::TAKEN_UP};
use crate::{
    entropy::{Nanos, SECOND},
    tasks::Pause,
};

/// The longest time for which a command continues after its caller has left.
pub(super) const RUNS_ON: Nanos = 600 * SECOND;
/// The longest time from the decision to write to the sending of the write.
pub(super) const AT_ONCE: Nanos = 50_000_000;
/// The reason why a caller may be gone before the first write of its command is sent.
pub(super) const STOOD_STILL: &str = "a copy stands still between its look at its caller and its write";

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
    /// True if the copy stood still and sent the first write after the caller had left. The command continues anyway.
    pub(super) began_late: bool,
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
    Template {
        group: String,
    },
    Other(&'static str),
}

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
            "NodeGroupTemplateNodeInfo" => {
                let request: NodeGroupTemplateNodeInfoRequest = decode(message);
                Request::Template { group: request.id }
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
        let asked = Asked {
            copy,
            at: self.now,
            ended: None,
            is_ok: false,
            is_refused: false,
            request,
            rollout,
            began_late: false,
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

    pub(crate) fn answered(&mut self, number: u64, answered: &Answered<'_>) {
        let now = self.now;
        let Some(asked) = self.asked.get_mut(&number) else { return };
        asked.ended = Some(now);
        asked.is_ok = answered.code == Some(Code::Ok);
        asked.is_refused = answered.code.is_some_and(|code| code != Code::Ok && !is_open(code));
        let asked = asked.clone();
        self.notes_outcome(&asked, answered.code);
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
                self.deletes_are_done(&asked, uids);
            }
            Request::Delete { group, uids, places } if !is_open(code) => {
                self.refused(number, &asked, group, uids, answered);
                self.delete_for_cause((asked.copy, asked.at), group, (uids, *places), answered.text);
                self.delete_is_denied(asked.copy, uids, answered.text);
            }
            Request::Decrease { group, .. } if code == Code::Ok => self.decrease_is_done(&asked, group),
            Request::Decrease { group, .. } if asked.is_refused => {
                self.decrease_is_refused(number, &asked, group, code);
            }
            Request::Instances { group } if code == Code::Ok => {
                self.instances(asked.copy, group, asked.at, &decode(answered.message));
            }
            Request::Template { group } if code == Code::Ok => self.template_answered(&asked, group, answered.message),
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
            | Request::Template { .. }
            | Request::Other(_) => {}
        }
    }

    /// Checks an answer of a read-only copy. Returns true for a request that would write; the copy did nothing for it.
    fn is_read_only_answer(&mut self, asked: &Asked, code: Code) -> bool {
        let knows = |group: &str| self.knows(asked.copy, group, asked.at.saturating_sub(TAKEN_UP));
        let is_alive = |uid: &String| {
            let is_there = self.machines.get(uid).is_some_and(|machine| !machine.is_deleting && !machine.is_gone);
            is_there && !self.removals.iter().any(|removal| removal.uid == *uid)
        };
        let is_work = match &asked.request {
            Request::Increase { .. } | Request::Decrease { .. } => true,
            // An instance without a Machine may be one that is gone.
            Request::Delete { group, uids, places: _ } => knows(group) && uids.iter().any(is_alive),
            Request::TargetSize { .. } | Request::Instances { .. } | Request::Template { .. } | Request::Other(_) => {
                return false;
            }
        };
        if code == Code::Ok && is_work {
            let what = format!("copy {} may not write, and answers {:?} with OK", asked.copy, asked.request);
            self.find(Check::ReadOnly, what);
        }
        true
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
        self.removals_are_left(copy);
        self.forget_watches(copy);
    }

    /// Records a size that a copy has written, other than for Machines that it has removed.
    pub(super) fn size_of_command(&mut self, copy: usize, id: &str, before: &Group, size: i64) {
        let by = size - before.size;
        if by > 0 {
            return self.increased(copy, id, (before.size, size));
        }
        if !self.is_for_places(copy, id, -by) {
            self.find_author_missing(copy, id, (before.size, size));
        }
    }

    /// Returns true if calls ask for a smaller size for what has no Machine.
    pub(super) fn is_for_places(&mut self, copy: usize, id: &str, by: i64) -> bool {
        // One write may lower a group for the instances of several requests.
        self.assign(copy, id, -by) || (by > 1 && (0..by).all(|_| self.assign(copy, id, -1)))
    }
}

/// The max number of times that a copy may send the same request within a second.
const MOST_IN_A_SECOND: usize = 20;

/// Returns the name under which a size is written: one per command.
fn writer(parts: &Parts) -> Option<&str> {
    let mut pairs = parts.uri.query()?.split('&');
    pairs.find_map(|pair| pair.strip_prefix("fieldManager="))
}

/// Returns true for a write that is only tried.
pub(crate) fn is_dry_run(parts: &Parts) -> bool {
    parts.uri.query().is_some_and(|query| query.contains("dryRun=All"))
}

impl Ledger {
    /// Records a request that a copy sends; it may arrive late or never.
    pub(crate) fn sends(&mut self, copy: usize, parts: &Parts, at: Nanos) {
        self.is_patient(copy, parts, at);
        if parts.method == Method::GET {
            return;
        }
        if self.read_only == Some(copy) {
            let what = format!("copy {copy} may not write, and sends {} {}", parts.method, parts.uri);
            self.find(Check::ReadOnly, what);
        }
        if is_dry_run(parts) {
            return;
        }
        let path = parts.uri.path();
        let writer = writer(parts);
        if let Some(writer) = writer {
            self.sends_size(writer, at);
        }
        self.patches.push((copy, path.to_owned(), at));
        let now = self.now;
        self.patches.retain(|(_, _, at)| now.saturating_sub(*at) < RUNS_ON);
    }

    /// Checks that a copy that gets errors waits before it repeats a request.
    fn is_patient(&mut self, copy: usize, parts: &Parts, at: Nanos) {
        let request = format!("copy {copy} sends {} {}", parts.method, parts.uri.path());
        while self.recent.front().is_some_and(|(sent, _)| sent + SECOND < at) {
            self.recent.pop_front();
        }
        self.recent.push_back((at, request));
        let Some((_, request)) = self.recent.back() else { return };
        let same = self.recent.iter().filter(|(_, other)| other == request).count();
        if same > MOST_IN_A_SECOND {
            let what = format!("{request} {same} times within a second");
            self.find(Check::QuietApi, what);
        }
    }

    /// Returns true if the caller of a call was waiting when its copy sent a write, or until just before, as far as the
    /// copy could know.
    pub(super) fn is_in_time(&self, asked: &Asked, sent: Nanos) -> bool {
        asked.ended.is_none_or(|ended| sent <= ended + AT_ONCE || self.stood_still(asked.copy, ended, sent))
    }

    /// Returns true if a task of a copy didn't run from before `ended` to just before `sent`: it checked that its
    /// caller was waiting, and went on to its write after the caller had left.
    pub(super) fn stood_still(&self, copy: usize, ended: Nanos, sent: Nanos) -> bool {
        let is_it = |pause: &&Pause| pause.copy == copy && pause.began <= ended;
        self.pauses.iter().filter(is_it).any(|pause| (pause.ended..=pause.ended + AT_ONCE).contains(&sent))
    }

    /// Records the arrival of a request that was sent at this time.
    pub(crate) fn arrives(&mut self, parts: &Parts, sent: Nanos) {
        self.sent = sent;
        self.writer = writer(parts).map(str::to_owned);
    }

    /// Returns true if a copy has sent a write of a group, or of one of its Machines, between two times.
    pub(super) fn has_patched(&self, copy: usize, id: &str, from: Nanos, to: Nanos) -> bool {
        let name = id.rsplit('/').next().unwrap_or_default();
        let is_of_machine = |path: &str| {
            let named = path.split("/machines/").nth(1);
            named.is_some_and(|name| self.machines.values().any(|it| it.name == name && it.group == id))
        };
        let is_of = |path: &str| path.split(['/', '?']).any(|part| part == name) || is_of_machine(path);
        self.patches.iter().any(|(by, path, at)| *by == copy && (from..=to + AT_ONCE).contains(at) && is_of(path))
    }
}
