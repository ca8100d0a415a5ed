//! The final checks at the quiet end of a world.

use std::collections::BTreeSet;

use sandbox::api::{Resource, Selection};
use serde_json::Value;

use super::{Cluster, MOST_AT_REST, Member, PROGRESS, REST, SETTLE, World};
use crate::{
    entropy::SECOND,
    ledger::Check,
    network::{HostId, MANAGEMENT},
    setup::Group,
};

/// The cause for which a Pod may wait for long: Cluster Autoscaler uses a Node whose labels Cluster API hadn't set as
/// the group's template.
const REMEMBERED: &str = "Cluster Autoscaler remembers a Node of the group that had no labels yet";

/// Another such cause: the infrastructure of a MachinePool chooses by itself, and takes a Node that runs the Pod
/// instead of a drained one.
const TAKES_ANY: &str = "the infrastructure of a MachinePool without Machines takes Nodes that nobody named";

/// The time for which no Node is scaled down of a group that is left alone: ten years, in nanoseconds.
const HELD_FOR: &str = "315360000000000000";

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AtRest {
    watches: u64,
    events: u64,
    others: u64,
}

impl AtRest {
    pub(super) fn count(&mut self, verb: &str, is_event: bool) {
        let number = match verb {
            "watch" => &mut self.watches,
            _ if is_event => &mut self.events,
            _ => &mut self.others,
        };
        *number += 1;
    }
}

/// Another such cause: the MachineSet counts the Machine as a replica, and Cluster Autoscaler backs the group off.
const HUNG: &str = "a Machine that hangs in deletion keeps a new one from being made";

/// Another such cause: while a group is at its minimum, the error of a Machine isn't sent, since its delete would be
/// refused.
const LATE_ERROR: &str = "the error of an older Machine is sent once the group has grown, and it is backed off";

/// Another such cause: increases of a group whose size somebody keeps putting back are refused for half an hour.
const PUT_BACK: &str = "somebody keeps putting a size back, and increases of the group are refused";

impl World {
    /// Runs the final checks, on the Clusters that copies can reach.
    pub(super) fn judge(&mut self, fresh: HostId, reached: &[usize]) {
        for cluster in reached {
            self.ledger.of_mut(*cluster).at_rest();
            self.judge_progress(*cluster);
        }
        let most = u64::try_from((self.copies + 1) * self.clusters.len()).unwrap_or(1) * MOST_AT_REST;
        let sent = self.at_rest;
        if sent.others.max(sent.watches).max(sent.events) > most {
            self.ledger.find(Check::QuietApi, format!("{sent:?} in the last {} s", REST / SECOND));
        }
        self.judge_lanes();
        for cluster in reached {
            self.judge_groups(*cluster);
            self.judge_answers(*cluster, fresh);
            self.judge_templates(*cluster);
        }
    }

    /// Checks that no command is under way, and that no state of one remains.
    fn judge_lanes(&mut self) {
        let mut found = Vec::new();
        for (id, member) in self.members.iter().enumerate() {
            let Member::Copy(copy) = member else { continue };
            let lanes = copy.lanes();
            if lanes > 0 {
                found.push(format!("copy {} has {lanes} groups with commands under way", id - 1));
            }
        }
        for what in found {
            self.ledger.find(Check::Rest, what);
        }
    }

    /// Checks that copies have forgotten groups that are long gone, with or without a Refresh.
    fn judge_groups(&mut self, cluster: usize) {
        let mut found = Vec::new();
        for (id, member) in self.members.iter().enumerate() {
            let Member::Copy(copy) = member else { continue };
            let forgotten = self.ledger.of(cluster).forgotten();
            for group in forgotten.into_iter().filter(|group| copy.has_group(cluster, group)) {
                found.push(format!("copy {} keeps {group}, which is long gone", id - 1));
            }
        }
        for what in found {
            self.ledger.of_mut(cluster).find(Check::Consistent, what);
        }
    }

    /// Checks that each copy answers like a fresh one. A read-only copy sends no errors and has options of its own.
    fn judge_answers(&mut self, cluster: usize, fresh: HostId) {
        let copy_of = |id: HostId| match &self.members[id] {
            Member::Copy(copy) => Some(copy),
            Member::Plain(_) | Member::Dead => None,
        };
        let mut ready = self.ready_nodes(cluster);
        if self.plan.remember {
            // Nodes of one template differ, and a copy may have seen smaller ones than those that are left.
            ready.retain(|provider_id| !self.ledger.of(cluster).has_siblings(provider_id));
        }
        let mut found = Vec::new();
        for id in 0..self.members.len() {
            let of_writer = self.ways.read_only.is_none_or(|copy| id != 1 + copy);
            let (Some(copy), Some(fresh)) = (copy_of(id), copy_of(fresh)) else { continue };
            match (copy.answers(cluster, of_writer, &ready), fresh.answers(cluster, of_writer, &ready)) {
                (Err(status), _) => {
                    found.push((Check::RefreshHealed, format!("copy {} answers {status:?}", id - 1)));
                }
                (Ok(mut answers), Ok(mut expected)) => {
                    leave_out_held(&mut answers, &mut expected);
                    if answers == expected {
                        continue;
                    }
                    let differing: Vec<_> = answers.iter().filter(|line| !expected.contains(line)).collect();
                    let missing: Vec<_> = expected.iter().filter(|line| !answers.contains(line)).collect();
                    let what = format!("copy {} answers {differing:?}, a fresh one {missing:?}", id - 1);
                    found.push((Check::LikeFresh, what));
                }
                (Ok(_), Err(_)) => {}
            }
        }
        for (check, what) in found {
            self.ledger.of_mut(cluster).find(check, what);
        }
    }

    /// Checks that no copy's template of a group without Nodes is larger than what is remembered, or than a Node that was
    /// seen.
    fn judge_templates(&mut self, cluster: usize) {
        if !self.plan.remember {
            return;
        }
        let mut found = Vec::new();
        for group in &self.clusters[cluster].groups {
            for member in &self.members {
                let Member::Copy(copy) = member else { continue };
                let Some(amounts) = copy.amounts_of_template(cluster, &group.id()) else { continue };
                let ledger = self.ledger.of(cluster);
                found.extend(ledger.is_too_large(&group.id(), amounts));
                let most = ledger.remembered(&group.id()).filter(|_| ledger.size(&group.id()) == Some(0));
                if let Some(most) = most.filter(|most| amounts.exceeds(*most)) {
                    found.push(format!("{} has {amounts:?}, and {most} bytes are remembered", group.id()));
                }
            }
        }
        for what in found {
            self.ledger.of_mut(cluster).find(Check::Remembered, what);
        }
    }

    fn ready_nodes(&self, cluster: usize) -> BTreeSet<String> {
        let is_ready = |node: &Value| {
            let conditions = node["status"]["conditions"].as_array();
            conditions.is_some_and(|all| all.iter().any(|it| it["type"] == "Ready" && it["status"] == "True"))
        };
        let api = self.api_of(if self.plan.fleet { cluster + 1 } else { MANAGEMENT }).api();
        let nodes = api.list(&Resource::core("nodes"), &Selection::default()).unwrap_or_default();
        let ready = nodes.iter().filter(|node| is_ready(node));
        ready.filter_map(|node| node["spec"]["providerID"].as_str().map(str::to_owned)).collect()
    }

    /// Checks that no Pod has waited since the faults ended although a group below its max size fits it.
    fn judge_progress(&mut self, cluster: usize) {
        let calm = self.plan.seconds * SECOND;
        let waited = self.now.saturating_sub(calm);
        if waited < PROGRESS {
            return;
        }
        let Cluster { groups, waitlist, .. } = &self.clusters[cluster];
        let ledger = self.ledger.of_mut(cluster);
        for (pod, waiting) in waitlist.for_longer_than(waited - SETTLE, self.now) {
            let sizes = groups.iter().filter(|group| group.fits(waiting.cpu, &waiting.selector));
            let sizes = sizes.filter_map(|group| Some((group, ledger.size(&group.id())?)));
            let is_open = |(group, size): &(&Group, i64)| ledger.max(&group.id()).is_some_and(|max| *size < max);
            let open: Vec<_> = sizes.filter(is_open).collect();
            let is_misjudged = |(group, _): &(&Group, i64)| ledger.was_without_labels(&group.id());
            if !waiting.selector.is_empty() && open.iter().any(is_misjudged) {
                *ledger.exceptions.entry(REMEMBERED).or_default() += 1;
                continue;
            }
            if open.iter().any(|(group, _)| ledger.takes_any(&group.id())) {
                *ledger.exceptions.entry(TAKES_ANY).or_default() += 1;
                continue;
            }
            if open.iter().any(|(group, _)| ledger.hung_in_deletion(&group.id())) {
                *ledger.exceptions.entry(HUNG).or_default() += 1;
                continue;
            }
            if open.iter().any(|(group, _)| ledger.sent_late_error(&group.id())) {
                *ledger.exceptions.entry(LATE_ERROR).or_default() += 1;
                continue;
            }
            if !open.is_empty() && open.iter().all(|(group, _)| ledger.is_left_to_others(&group.id(), calm)) {
                *ledger.exceptions.entry(PUT_BACK).or_default() += 1;
                continue;
            }
            if !open.is_empty() {
                let open: Vec<_> = open.iter().map(|(group, size)| format!("{} of size {size}", group.id())).collect();
                let since = (self.now - waiting.since) / SECOND;
                ledger.find(Check::Progress, format!("{pod} has waited for {since} s, and could run on {open:?}"));
            }
        }
    }
}

/// Leaves out options that keep the Nodes of a group where only one copy leaves it alone: each remembers for itself which
/// writes were refused, or put back.
fn leave_out_held(answers: &mut Vec<String>, expected: &mut Vec<String>) {
    let is_held = |line: &String| line.contains(" options ") && line.contains(HELD_FOR);
    let group = |line: &String| line.split_once(" options ").map(|(group, _)| group.to_owned());
    let held =
        |lines: &[String]| -> BTreeSet<String> { lines.iter().filter(|it| is_held(it)).filter_map(group).collect() };
    let differing: BTreeSet<_> = held(answers).symmetric_difference(&held(expected)).cloned().collect();
    for lines in [answers, expected] {
        lines.retain(|line| group(line).is_none_or(|group| !differing.contains(&group)));
    }
}
