//! The state on which commands decide without an API call: that of the watches and of this process.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
};

use arcstr::ArcStr;
use capi::{self, Machine, Meta, ScalableKind};
use delete_rule::{Policy, Rule, steps::CallerId};
use jiff::Timestamp;
use nodegroup::{
    DeletionLog, Ticket,
    deletion_log::{Entry, Types},
    instance,
    replacement::{self, Replaced},
    writing::{GroupVersion, NotScalable, Note, SizeWriter},
};
use shared_informer::AsOf;

use super::{
    options::AtMinSize,
    rule::{self, Candidate, Life, Named, Now, RULE, Replaceable, Request, UnloggedMachines, View},
    work::Work,
};
use index::{Era, Member};

/// The state as of now, and a predicate for callers that have left.
pub(super) struct CurrentState<'a, F> {
    pub(super) work: &'a Work,
    pub(super) has_left: F,
}

impl<F: Fn(CallerId) -> bool> Now<Types> for CurrentState<'_, F> {
    fn view(&self) -> Result<View, NotScalable> {
        let view = self.work.index().scale_view(&self.work.id)?;
        Ok(View { version: view.version, bounds: view.bounds, rollout: view.rollout })
    }

    fn lives(&self, group: &GroupVersion, named: &[Named]) -> Vec<Option<Life>> {
        let era = self.work.index().era(&self.work.id).filter(|era| era.generation() == group.generation);
        named.iter().map(|named| life(self.work, era.as_ref(), named)).collect()
    }

    fn has_machine(&self, named: &Named) -> bool {
        let key = self.work.machine_key(&named.name);
        self.work.index().has_machine(&key, &named.uid) || !self.work.shared.machines.has_all_of(&key.namespace)
    }

    fn is_stranger(&self, entry: &Entry) -> bool {
        let key = self.work.machine_key(&entry.name);
        self.work.index().is_of(&self.work.id, &key, &entry.uid) == Some(false)
    }

    fn knows_group_of(&self, entry: &Entry) -> bool {
        let key = self.work.machine_key(&entry.name);
        self.work.index().is_of(&self.work.id, &key, &entry.uid).is_some()
    }

    fn is_marked_by_another(&self, entry: &Entry) -> bool {
        let mark = self.work.index().mark_of(&self.work.machine_key(&entry.name), &entry.uid);
        mark.is_some_and(|mark| Ticket::of_mark(&mark).is_none())
    }

    fn has_node(&self, entry: &Entry) -> bool {
        self.work.index().has_node(&self.work.machine_key(&entry.name), &entry.uid)
    }

    fn unlogged_machines(&self, log: &DeletionLog) -> UnloggedMachines<Types> {
        let (index, id) = (self.work.index(), &self.work.id);
        let mut members = index.members(id);
        members.retain(|member| log.get(&member.machine.meta.uid).is_none() && !member.machine.deleting);
        if id.kind == ScalableKind::MachinePool
            && members.is_empty()
            && let Ok(view) = index.scale_view(id)
        {
            return UnloggedMachines { with_node: view.machines_with_node, waiting: Vec::new() };
        }
        let (joined, mut waiting): (Vec<_>, Vec<_>) = members.into_iter().partition(Member::has_node);
        waiting.sort_by_key(|member| !instance::has_failed(&member.machine));
        let named = |member: Member| Named {
            name: member.machine.meta.key.name.clone(),
            uid: member.machine.meta.uid.clone(),
            never_joined: true,
        };
        let with_node = i32::try_from(joined.len()).unwrap_or(i32::MAX);
        UnloggedMachines { with_node, waiting: waiting.into_iter().map(named).collect() }
    }

    fn followed<P: Policy>(&self, rule: Rule<P>) -> Option<(GroupVersion, delete_rule::Followed<Types, P>)> {
        let (version, sets) = self.work.index().sets(&self.work.id)?;
        Some((version, rule::followed(rule, self.work.id.kind, &sets)))
    }

    fn replaceable(&self, request: &Request, log: &DeletionLog) -> Result<Replaceable, NotScalable> {
        let (index, id) = (self.work.index(), &self.work.id);
        let view = index.scale_view(id)?;
        let members = index.members(id);
        // A Machine whose deletion is under way needs no replacement.
        let is_named = |machine: &Machine| {
            let uid = &machine.meta.uid;
            !machine.deleting && log.get(uid).is_none() && request.machines.iter().any(|named| named.uid == *uid)
        };
        let named: Vec<_> = members.iter().filter(|member| is_named(&member.machine)).collect();
        let last: Result<Option<Replaced>, ArcStr> = match &view.replaced {
            Some(text) if capi::is_unread(text) => Err(text.clone()),
            text => Ok(text.as_deref().and_then(|text| text.parse().ok())),
        };
        let known = last.as_ref().ok().and_then(Option::as_ref);
        let first = replacement::first(named.iter().map(|member| member.machine.as_ref()), known);
        let first = named.iter().find(|member| first.is_some_and(|first| first.meta.uid == member.machine.meta.uid));
        let candidate = |member: &&Member| {
            let Meta { key, uid, resource_version } = member.machine.meta.clone();
            let note =
                Note { group: view.version.uid.clone(), text: view.replaced.clone(), machine: member.machine.clone() };
            Candidate { machine: Named { name: key.name, uid, never_joined: true }, version: resource_version, note }
        };
        let with_node = members.iter().filter(|member| member.has_node());
        let joined = with_node.filter_map(|member| member.machine.created.time()).max();
        Ok(Replaceable {
            is_allowed: self.work.shared.options.at_min_size == AtMinSize::Replace,
            named: named.len(),
            has_joined: named.iter().any(|member| member.has_node()),
            first: first.map(candidate),
            last: last.map(|last| last.as_ref().map(Replaced::decided)),
            joined: joined.map(Timestamp::as_nanosecond),
            now: Timestamp::now().as_nanosecond(),
        })
    }

    fn counts_deleting(&self) -> bool {
        self.work.api().counts_deleting()
    }

    fn has_left(&self, caller: CallerId) -> bool {
        (self.has_left)(caller)
    }

    fn ticket(&self) -> Ticket {
        // Each `RandomState` has its own keys, which derive from the operating system's random numbers.
        Ticket::new(Timestamp::now(), RandomState::new().hash_one(0_u8))
    }

    fn writer(&self) -> SizeWriter {
        SizeWriter::draw()
    }
}

/// Returns the life of a Machine as the watch shows it; `None` if the watch lags too far behind to be trusted, or may
/// have left the Machine out.
fn life(work: &Work, era: Option<&Era>, named: &Named) -> Option<Life> {
    let key = work.machine_key(&named.name);
    if !work.shared.machines.has_all_of(&key.namespace) && !work.index().has_machine(&key, &named.uid) {
        return None;
    }
    // The Machine existed when the request was read, so it is gone for good.
    if !work.index().has_machine(&key, &named.uid) {
        return Some(Life::Gone);
    }
    match work.shared.machines.as_of(&key, RULE.believed_since(era?, &named.uid)?) {
        AsOf::Present(object) => match &object.content {
            Ok(machine) if machine.meta.uid == named.uid => Some(life_of(machine)),
            Ok(_) => Some(Life::Gone),
            Err(_) => None,
        },
        // A Machine that the watch has never shown may be newer than the watch.
        AsOf::Absent | AsOf::Behind => None,
    }
}

fn life_of(machine: &Arc<Machine>) -> Life {
    if machine.deleting { Life::Deleting } else { Life::Alive }
}
