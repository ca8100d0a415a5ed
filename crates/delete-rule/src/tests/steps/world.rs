//! A fake of the API server and of the watches, with one group.

use std::{cell::Cell, collections::BTreeMap};

use super::{
    text::{Failed, Version},
    words::{answers, shown},
    *,
};
use crate::{
    replacement::{Replaced, WallTime},
    steps::{
        Call, CallerId, Candidate, Details, Effect, Group as _, MarkCall, MarkOutcome, Now, Outcome, Replaceable,
        Steps, UnloggedMachines, View,
    },
};

#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) deleting: bool,
    pub(super) has_node: bool,
    mark: Option<Ticket>,
    pub(super) version: u32,
}

fn alive() -> Machine {
    Machine { deleting: false, has_node: true, mark: None, version: 0 }
}

/// The fate of a call.
#[derive(Clone, Copy)]
pub(super) enum Happens {
    Nothing,
    /// The call isn't executed. After a failed pause there is no other attempt.
    Fails(Failure),
    /// The call is executed, and its response is lost.
    Lost,
    /// This function runs before the call.
    Before(fn(&mut World)),
}

/// The owner of the Machines.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Owner {
    /// The group, as the watch has shown.
    Known,
    /// The group, although the watch hasn't shown it.
    Unseen,
    /// Another group, which the watch hasn't shown.
    Another,
}

/// The Nodes that their watch shows.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Shown {
    Nothing,
    /// The Nodes that exist.
    Present,
    /// A Node of each Machine, whatever a read of the Machine says.
    All,
}

/// The state of the callers of all commands.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Callers {
    Wait,
    HaveLeft,
}

pub(super) struct World {
    pub(super) group: Version,
    machines: BTreeMap<String, Machine>,
    /// The writer of the last size.
    writer: u32,
    /// The number of tickets and writers that were drawn.
    drawn: Cell<u32>,
    pub(super) callers: Callers,
    /// True if the watch of Machines has reached the group's version.
    pub(super) knows_lives: bool,
    pub(super) shown_nodes: Shown,
    pub(super) owner: Owner,
    /// The Machines that somebody else has marked, as the watch shows.
    pub(super) marked_by_another: Vec<&'static str>,
    /// The fates of later calls, each for the next call whose text has this prefix.
    events: Vec<(&'static str, Happens)>,
    waiting: Vec<Call<Text>>,
    /// The calls that were made.
    pub(super) calls: Vec<String>,
    ends: Vec<(CallerId, Result<(), NotDone>)>,
    pub(super) filled: Vec<String>,
    /// The Machines whose marks couldn't be removed.
    pub(super) stays: Vec<String>,
    /// True if Machines may be replaced.
    pub(super) replaces: bool,
    /// The last replacement that the group holds; `unread` is the reason why it can't be read.
    pub(super) replaced: Option<Replaced<Uid>>,
    pub(super) unread: Option<&'static str>,
    pub(super) time: WallTime,
    /// The ended entries that a finisher reports, and the replaced Machines.
    pub(super) ended: Vec<String>,
    /// The entries that the MachineSet has followed.
    pub(super) followed: DeletionLog,
}

impl World {
    pub(super) fn of(replicas: i32, machines: &[&str]) -> Self {
        Self {
            group: Version { generation: 1, replicas, log: DeletionLog::default() },
            machines: machines.iter().map(|name| (Uid::from(*name), alive())).collect(),
            writer: 0,
            drawn: Cell::new(0),
            callers: Callers::Wait,
            knows_lives: true,
            shown_nodes: Shown::Nothing,
            owner: Owner::Known,
            marked_by_another: Vec::new(),
            events: Vec::new(),
            waiting: Vec::new(),
            calls: Vec::new(),
            ends: Vec::new(),
            filled: Vec::new(),
            stays: Vec::new(),
            replaces: true,
            replaced: None,
            unread: None,
            time: 0,
            ended: Vec::new(),
            followed: DeletionLog::default(),
        }
    }

    pub(super) fn machine(&mut self, name: &str) -> &mut Machine {
        self.machines.get_mut(name).unwrap()
    }

    /// Adds a Machine, and then runs a function.
    pub(super) fn grow(&mut self, name: &str, then: fn(&mut Self)) {
        self.machines.insert(name.into(), alive());
        then(self);
    }

    /// Writes size and log as somebody else.
    pub(super) fn write(&mut self, replicas: i32, log: DeletionLog) {
        self.group.generation += i64::from(replicas != self.group.replicas);
        (self.group.replicas, self.group.log, self.writer) = (replicas, log, 0);
    }

    /// Sets the fate of the next call with this prefix that has none yet.
    pub(super) fn happens(&mut self, call: &'static str, happens: Happens) {
        self.events.push((call, happens));
    }

    pub(super) fn answers(&self) -> Vec<String> {
        answers(&self.ends)
    }

    /// Returns the marks of the Machines.
    pub(super) fn marks(&self) -> Vec<String> {
        let mark = |(name, machine): (&String, &Machine)| Some(format!("{name}: {}", machine.mark.as_ref()?));
        self.machines.iter().filter_map(mark).collect()
    }

    pub(super) fn run(&mut self, steps: &mut impl Steps<Text>) {
        self.run_until(steps, "the end");
    }

    /// Makes calls until the next one is `until`, which isn't made.
    pub(super) fn run_until(&mut self, steps: &mut impl Steps<Text>, until: &str) {
        for _ in 0..100 {
            let asked = steps.next(&*self);
            self.waiting.extend(asked);
            self.note(steps.effects());
            if self.waiting.first().is_none_or(|call| shown(call) == until) {
                return;
            }
            let call = self.waiting.remove(0);
            let outcome = self.make(call);
            steps.took(outcome);
            self.note(steps.effects());
        }
        panic!("it doesn't end: {:?}", self.calls);
    }

    fn note(&mut self, effects: Vec<Effect<Text>>) {
        for effect in effects {
            match effect {
                Effect::Answer(caller, end) => self.ends.push((caller, end)),
                Effect::Filled(name) => self.filled.push(name),
                Effect::MarkStays(name, _) => self.stays.push(name),
                Effect::DeletedByName(entry) => self.ended.push(format!("{} deleted", entry.name)),
                Effect::Replaced(machine, _) => self.ended.push(format!("{} replaced", machine.name)),
                Effect::Over(entries) => self.ended.extend(entries.iter().map(|entry| format!("{} over", entry.name))),
                _ => {}
            }
        }
    }

    fn make(&mut self, call: Call<Text>) -> Outcome<Text> {
        let text = shown(&call);
        let event = self.events.iter().position(|(begin, _)| text.starts_with(begin));
        let happens = event.map_or(Happens::Nothing, |place| self.events.remove(place).1);
        self.calls.push(text);
        match happens {
            Happens::Before(happens) => happens(self),
            Happens::Fails(failure) => return failed(call, Failed(failure)),
            Happens::Lost => {
                self.done(call.clone());
                return failed(call, Failed(Failure::Unknown));
            }
            Happens::Nothing => {}
        }
        self.done(call)
    }

    fn done(&mut self, call: Call<Text>) -> Outcome<Text> {
        match call {
            Call::ReadGroup(_) => Outcome::Group(Ok(self.group.clone())),
            Call::ReadSize(writer) => {
                let sized_by = if self.writer == writer { SizedBy::This } else { SizedBy::Another };
                Outcome::Size(Ok((self.group.clone(), sized_by)))
            }
            Call::Read(named) => Outcome::Life(named.uid.clone(), Ok(self.life(&named.uid))),
            Call::ReadDetails(named) => {
                let whole = self.whole(&named.uid);
                Outcome::Details(named.uid, Ok(whole))
            }
            Call::ReadVersion(entry) => {
                let version = self.machines.get(&entry.uid).map(|machine| machine.version);
                Outcome::Version(entry, version)
            }
            Call::List(_) => Outcome::Listed(Ok(self.list())),
            Call::WriteLog { seen, log } => self.written(self.group == seen, self.group.replicas, log, 0),
            Call::Lower { seen, lowering } => self.written(self.group == seen, lowering.to, lowering.log, 0),
            Call::Resize { seen, to, writer, counted } => {
                let is_as_seen = self.group.replicas == seen.replicas;
                let is_unchanged = !counted || self.group.is_unchanged_since(&seen);
                self.written(is_as_seen && is_unchanged, to, self.group.log.clone(), writer)
            }
            Call::Mark(entry, call) => {
                let outcome = self.mark(&entry, &call);
                Outcome::Mark(entry, outcome)
            }
            Call::Delete { machine, version } => {
                let deleted = match self.machines.get_mut(&machine.uid) {
                    Some(found) if version.is_some_and(|version| version != found.version) => {
                        Err(Failed(Failure::Conflict))
                    }
                    Some(found) => {
                        found.deleting = true;
                        Ok(true)
                    }
                    None => Ok(false),
                };
                Outcome::Deleted(machine.uid, deleted)
            }
            Call::Unmark { name, ticket, version } => {
                let is_such = |it: &Machine| it.version == version && it.mark.as_ref() == Some(&ticket);
                let taken = match self.machines.get_mut(&name) {
                    Some(machine) if is_such(machine) => {
                        (machine.mark, machine.version) = (None, machine.version + 1);
                        Ok(())
                    }
                    Some(_) => Err(Failed(Failure::Rejected)),
                    None => Ok(()),
                };
                Outcome::Unmarked(name, taken)
            }
            Call::WriteReplaced { note, replaced } => {
                if note != self.replaced {
                    return Outcome::WrittenReplaced(Err(Failed(Failure::Rejected)));
                }
                self.replaced = Some(replaced);
                Outcome::WrittenReplaced(Ok(()))
            }
            Call::Pause(row, Failed(failure)) => Outcome::Paused(row, failure != Failure::Final),
        }
    }

    fn written(&mut self, is_as_seen: bool, to: i32, log: DeletionLog, writer: u32) -> Outcome<Text> {
        if !is_as_seen {
            return Outcome::Written(Err(Failed(Failure::Rejected)));
        }
        self.write(to, log);
        self.writer = writer;
        Outcome::Written(Ok(self.group.clone()))
    }

    fn mark(&mut self, entry: &Entry, call: &MarkCall<Text>) -> MarkOutcome<Text> {
        match call {
            MarkCall::ReadOwner => MarkOutcome::IsOfGroup(Ok(self
                .machines
                .contains_key(&entry.uid)
                .then_some(self.owner != Owner::Another))),
            MarkCall::Read => MarkOutcome::Life(Ok(self.life(&entry.uid))),
            MarkCall::ReadDetails => MarkOutcome::Details(Ok(self.whole(&entry.uid))),
            MarkCall::ReadGroup => MarkOutcome::Group(Ok(self.group.clone())),
            MarkCall::Set(version) => {
                let Some(machine) = self.machines.get_mut(&entry.uid) else { return MarkOutcome::Set(Ok(Life::Gone)) };
                if version.is_some_and(|version| version != machine.version) {
                    return MarkOutcome::Set(Err(Failed(Failure::Conflict)));
                }
                (machine.mark, machine.version) = (Some(entry.ticket.clone()), machine.version + 1);
                MarkOutcome::Set(Ok(self.life(&entry.uid)))
            }
        }
    }

    fn whole(&self, uid: &Uid) -> Details<Text> {
        let (machine, life) = (self.machines.get(uid), self.life(uid));
        let alive = machine.filter(|_| life == Life::Alive);
        let has_joined = alive.is_some_and(|machine| machine.has_node);
        let version = alive.map(|machine| machine.version);
        Details { life, has_joined, version, ticket: machine.and_then(|machine| machine.mark.clone()) }
    }

    fn life(&self, uid: &Uid) -> Life {
        match self.machines.get(uid) {
            None => Life::Gone,
            Some(machine) if machine.deleting => Life::Deleting,
            Some(_) => Life::Alive,
        }
    }

    fn list(&self) -> GroupMachines {
        let of = |is_such: fn(&Machine) -> bool| {
            self.machines.iter().filter(move |(_, machine)| is_such(machine)).map(|(name, _)| name.clone())
        };
        let without_node = of(|machine| machine.deleting && !machine.has_node).map(|name| named(&name));
        GroupMachines {
            alive: of(|machine| !machine.deleting).collect(),
            draining: of(|machine| machine.deleting && machine.has_node).collect(),
            without_node: without_node.collect(),
            instances: None,
        }
    }
}

impl Now<Text> for World {
    fn view(&self) -> Result<View<Text>, &'static str> {
        Ok(View { version: self.group.clone(), bounds: BOUNDS, rollout: None })
    }

    fn lives(&self, _: &Version, named: &[Named]) -> Vec<Option<Life>> {
        named.iter().map(|named| self.knows_lives.then(|| self.life(&named.uid))).collect()
    }

    fn has_machine(&self, named: &Named) -> bool {
        self.machines.contains_key(&named.uid)
    }

    fn is_stranger(&self, _: &Entry) -> bool {
        false
    }

    fn knows_group_of(&self, _: &Entry) -> bool {
        self.owner == Owner::Known
    }

    fn has_node(&self, entry: &Entry) -> bool {
        match self.shown_nodes {
            Shown::Nothing => false,
            Shown::Present => self.machines.get(&entry.uid).is_some_and(|machine| machine.has_node),
            Shown::All => true,
        }
    }

    fn is_marked_by_another(&self, entry: &Entry) -> bool {
        self.marked_by_another.contains(&entry.name.as_str())
    }

    fn unlogged_machines(&self, log: &DeletionLog) -> UnloggedMachines<Text> {
        let machines = self.machines.iter().filter(|(name, machine)| !machine.deleting && log.get(name).is_none());
        let (joined, waiting): (Vec<_>, Vec<_>) = machines.partition(|(_, machine)| machine.has_node);
        let waiting = waiting.into_iter().map(|(name, _)| Named { never_joined: true, ..named(name) });
        UnloggedMachines { with_node: i32::try_from(joined.len()).unwrap(), waiting: waiting.collect() }
    }

    fn followed<P: Policy>(&self, rule: Rule<P>) -> Option<(Version, Followed<Text, P>)> {
        let set = finish::set(&[], |set| set.log = self.followed.clone());
        Some((self.group.clone(), rule.followed(Kind::MachineDeployment, &[set])))
    }

    fn replaceable(&self, request: &Request, log: &DeletionLog) -> Result<Replaceable<Text>, &'static str> {
        let is_open = |named: &&Named| self.life(&named.uid) == Life::Alive && log.get(&named.uid).is_none();
        let named: Vec<_> = request.machines.iter().filter(is_open).collect();
        let is_last = |uid: &Uid| self.replaced.as_ref().is_some_and(|last| last.uid == *uid);
        let candidate = |named: &&Named| Candidate {
            machine: Named::clone(named),
            version: self.machines[&named.uid].version,
            note: self.replaced.clone(),
        };
        Ok(Replaceable {
            is_allowed: self.replaces,
            named: named.len(),
            has_joined: named.iter().any(|named| self.machines[&named.uid].has_node),
            first: named.iter().min_by_key(|named| (!is_last(&named.uid), &named.uid)).map(candidate),
            last: self.unread.map_or_else(|| Ok(self.replaced.clone()), Err),
            joined: None,
            now: self.time,
        })
    }

    fn counts_deleting(&self) -> bool {
        true
    }

    fn has_left(&self, _: CallerId) -> bool {
        self.callers == Callers::HaveLeft
    }

    fn ticket(&self) -> Ticket {
        self.drawn.set(self.drawn.get() + 1);
        format!("t{}", self.drawn.get())
    }

    fn writer(&self) -> u32 {
        self.drawn.set(self.drawn.get() + 1);
        self.drawn.get()
    }
}

/// Returns the outcome of a call that has failed.
fn failed(call: Call<Text>, failed: Failed) -> Outcome<Text> {
    match call {
        Call::ReadGroup(_) => Outcome::Group(Err(failed)),
        Call::ReadSize(_) => Outcome::Size(Err(failed)),
        Call::Read(named) => Outcome::Life(named.uid, Err(failed)),
        Call::ReadDetails(named) => Outcome::Details(named.uid, Err(failed)),
        Call::ReadVersion(entry) => Outcome::Version(entry, None),
        Call::List(_) => Outcome::Listed(Err(failed)),
        Call::WriteLog { .. } | Call::Lower { .. } | Call::Resize { .. } => Outcome::Written(Err(failed)),
        Call::Mark(entry, call) => Outcome::Mark(entry, mark_failed(&call, failed)),
        Call::Delete { machine, .. } => Outcome::Deleted(machine.uid, Err(failed)),
        Call::Unmark { name, .. } => Outcome::Unmarked(name, Err(failed)),
        Call::WriteReplaced { .. } => Outcome::WrittenReplaced(Err(failed)),
        Call::Pause(row, _) => Outcome::Paused(row, false),
    }
}

fn mark_failed(call: &MarkCall<Text>, failed: Failed) -> MarkOutcome<Text> {
    match call {
        MarkCall::ReadOwner => MarkOutcome::IsOfGroup(Err(failed)),
        MarkCall::Read => MarkOutcome::Life(Err(failed)),
        MarkCall::ReadDetails => MarkOutcome::Details(Err(failed)),
        MarkCall::ReadGroup => MarkOutcome::Group(Err(failed)),
        MarkCall::Set(_) => MarkOutcome::Set(Err(failed)),
    }
}
